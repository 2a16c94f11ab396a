"""Every stateful operator and every state store: killed under load, location deleted, restored, identical.

In the gate a share of them, some on local disk and others on S3; all of them on both within four days.
"""

import fcntl
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_provider_ckpt.protocol.records import Rung
from tests.harness import campaign
from tests.spark.programs.matrix import CASES
from tests.spark.stage import Stage, feed, outputs, staged

pytestmark = [pytest.mark.slow, pytest.mark.spark]
FILES = 5
PLACES = ("local disk", "S3")


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> str:
    place: str = request.param
    return place


@pytest.fixture
def stage(
    place: str, request: pytest.FixtureRequest, tmp_path: Path, new_database: Callable[[str], str]
) -> Iterator[Stage]:
    """On S3 small files are packed, and everything is downloaded."""
    url = str(tmp_path / "storage") if place == "local disk" else str(request.getfixturevalue("bucket"))
    with staged(Stage(folder=tmp_path, url=new_database("sqlite"), storage_url=url)) as stage:
        yield stage


@pytest.fixture
def cases(place: str) -> list[str]:
    return _cases_on(place)


def _cases_on(place: str) -> list[str]:
    """Dealt out, so that every operator and every state store is on both places within four days."""
    turn = 2 * PLACES.index(place)
    return [case for number, case in enumerate(CASES) if campaign.is_turn(number + turn, of=4)]


@pytest.mark.campaign
def test_what_is_killed_and_restored_without_its_location_ends_like_an_undisturbed_run(
    stage: Stage, cases: list[str]
) -> None:
    source, out = stage.folder / "source", stage.folder / "out"
    feed(source, FILES)
    driver = stage.start("matrix", source, out, *cases)
    stage.running(driver)
    queries = stage.attempt_folder(1) / "queries"
    stage.until(lambda: len(list(queries.glob("*/commits/1"))) >= len(cases), driver)
    checkpoint = stage.checkpoint(driver)
    driver.kill()
    stage.delete_work(1)
    (out / "go").touch()

    restored = stage.restore()
    assert restored.choice.rung is Rung.CHECKPOINT
    again = stage.start("matrix", source, out, *cases)
    assert again.wait() == 0, again.said()

    cuts = stage.store.barriers.cuts(checkpoint.ref)
    assert set(cuts) == set(cases)
    assert all(cut.batch is not None and cut.batch < FILES - 1 for cut in cuts.values()), "it was not under load"
    assert outputs(out) == _undisturbed(stage, cases)


def _undisturbed(stage: Stage, cases: list[str]) -> dict[str, str]:
    """What plain Spark gives, which does not depend on the storage: one test runs the cases of both."""
    shared = Path(tempfile.gettempdir()) / "undisturbed"
    shared.mkdir(exist_ok=True)
    with (shared / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (shared / "done").exists():
            (shared / "out").mkdir()
            (shared / "out" / "go").touch()
            of_both = sorted({case for place in PLACES for case in _cases_on(place)})
            plain = stage.start("matrix", stage.folder / "source", shared / "out", *of_both, is_plain=True)
            assert plain.wait() == 0, plain.said()
            (shared / "done").touch()
    return {file: text for file, text in outputs(shared / "out").items() if file.partition("/")[0] in {*cases, "go"}}
