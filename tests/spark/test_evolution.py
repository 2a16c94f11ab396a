"""Programs that change in ways that Spark allows: sources with names come, go and change places; sinks have names."""

import json
from collections import Counter
from pathlib import Path

import pytest

from airflow_provider_ckpt.protocol.records import Rung
from tests.spark.stage import NAME, Driver, Stage, feed, quick_to_die

pytestmark = [pytest.mark.slow, pytest.mark.spark]
ROWS, FILES = 10, 3


def _expected(*sources: str) -> dict[str, int]:
    totals: Counter[str] = Counter()
    for _ in sources:
        for file in range(FILES):
            for row in range(ROWS):
                totals[str(row % 7)] += file * 50 + row
    return dict(totals)


def _read(out: Path) -> dict[str, int]:
    found: dict[str, int] = json.loads((out / "totals.json").read_text())
    return found


@pytest.fixture
def out(stage: Stage) -> Path:
    stage.store.pipelines.change(NAME, quick_to_die, actor="tester")
    for source in ("orders", "returns", "more"):
        feed(stage.folder / "source" / source, FILES, rows=ROWS)
    (stage.folder / "out").mkdir()
    return stage.folder / "out"


def _start(stage: Stage, version: int, named: str) -> Driver:
    return stage.start("named", stage.folder / "source", stage.folder / "out", version, named)


def _kill_after_a_checkpoint(stage: Stage, out: Path, version: int) -> None:
    (out / "hold").touch()
    driver = _start(stage, version, "orders:json,returns:json")
    stage.running(driver)
    stage.until(lambda: stage.committed("totals") >= 1, driver)
    stage.checkpoint(driver)
    driver.kill()
    (out / "hold").unlink()


def test_sources_with_names_change_places_come_and_go_between_two_attempts(stage: Stage, out: Path) -> None:
    _kill_after_a_checkpoint(stage, out, version=2)
    assert (stage.attempt_folder(1) / "queries" / "totals" / "commits" / "1").read_text().startswith("v3")
    stage.delete_work(1)
    stage.restore()
    refused = _start(stage, 2, "orders:json,returns:parquet")
    assert refused.wait() != 0
    assert 'the program has {"orders": "json", "returns": "parquet"}' in refused.said(), refused.said()

    stage.restore()
    changed = _start(stage, 2, "more:json,returns:json,orders:json")
    assert changed.wait() == 0, changed.said()
    assert _read(out) == _expected("orders", "returns", "more")
    fewer = _start(stage, 2, "orders:json")
    assert fewer.wait() == 0, fewer.said()
    assert _read(out) == _expected("orders", "returns", "more")


def test_sources_with_names_are_exact_where_offsets_are_kept_by_position(stage: Stage, out: Path) -> None:
    """Their logs have names and their offsets have none: only the order of the plan tells which belong together."""
    _kill_after_a_checkpoint(stage, out, version=1)
    swapped = _start(stage, 1, "returns:json,orders:json")
    assert swapped.wait() != 0
    assert "Offsets belong to the sources in this order" in swapped.said()
    stage.restore()
    again = _start(stage, 1, "orders:json,returns:json")
    assert again.wait() == 0, again.said()
    attempt = stage.attempt()
    assert attempt is not None
    assert attempt.rung is Rung.CHECKPOINT
    assert _read(out) == _expected("orders", "returns")
