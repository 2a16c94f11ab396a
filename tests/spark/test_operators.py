"""Every stateful operator and every state store: killed under load, location deleted, restored, identical."""

import fcntl
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_provider_ckpt.protocol.records import Rung
from tests.spark.stage import Stage, feed, outputs, staged

pytestmark = [pytest.mark.slow, pytest.mark.spark]
FILES = 6


@pytest.fixture(params=["local disk", "S3"])
def stage(request: pytest.FixtureRequest, tmp_path: Path, new_database: Callable[[str], str]) -> Iterator[Stage]:
    """On S3 small files are packed, and everything is downloaded."""
    url = str(tmp_path / "storage") if request.param == "local disk" else str(request.getfixturevalue("bucket"))
    with staged(Stage(folder=tmp_path, url=new_database("sqlite"), storage_url=url)) as stage:
        yield stage


def test_what_is_killed_and_restored_without_its_location_ends_like_an_undisturbed_run(stage: Stage) -> None:
    source, out = stage.folder / "source", stage.folder / "out"
    feed(source, FILES)
    driver = stage.start("matrix", source, out)
    stage.running(driver)
    queries = stage.attempt_folder(1) / "queries"
    stage.until(lambda: len(list(queries.glob("*/commits/1"))) >= 13, driver)
    checkpoint = stage.checkpoint(driver)
    driver.kill()
    stage.delete_work(1)
    (out / "go").touch()

    restored = stage.restore()
    assert restored.choice.rung is Rung.CHECKPOINT
    again = stage.start("matrix", source, out)
    assert again.wait() == 0, again.said()

    cuts = stage.store.barriers.cuts(checkpoint.ref)
    assert len(cuts) == 13
    assert all(cut.batch is not None and cut.batch < FILES - 1 for cut in cuts.values()), "it was not under load"
    assert outputs(out) == _undisturbed(stage)


def _undisturbed(stage: Stage) -> dict[str, str]:
    """What plain Spark gives, which does not depend on the storage: one test runs it for both."""
    shared = Path(tempfile.gettempdir()) / "undisturbed"
    shared.mkdir(exist_ok=True)
    with (shared / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (shared / "done").exists():
            (shared / "out").mkdir()
            (shared / "out" / "go").touch()
            plain = stage.start("matrix", stage.folder / "source", shared / "out", is_plain=True)
            assert plain.wait() == 0, plain.said()
            (shared / "done").touch()
    return outputs(shared / "out")
