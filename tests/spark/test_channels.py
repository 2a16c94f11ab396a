"""Three queries over two channels: every checkpoint is a consistent cut, whenever it is taken."""

import json
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread

import pytest

from airflow_provider_ckpt.protocol.cut import find_inconsistency, in_flight
from airflow_provider_ckpt.protocol.records import Checkpoint
from airflow_provider_ckpt.protocol.retention import Retention
from airflow_provider_ckpt.protocol.settings import Settings
from tests.harness import campaign
from tests.harness.processes import signal_session
from tests.spark.stage import Driver, Stage, feed

pytestmark = [pytest.mark.slow, pytest.mark.spark]
ROWS = 10


class Feeder:
    """Puts one file after the other into a folder until it is told to stop."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.files = 0
        self._stopped = Event()
        feed(folder, 0)
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def rows(self) -> Counter[tuple[int, int]]:
        """Everything that was put in, each row once."""
        return Counter((row % 7, file * 50 + row) for file in range(self.files) for row in range(ROWS))

    def _run(self) -> None:
        while not self._stopped.wait(0.3):
            feed(self._folder, 1, rows=ROWS, start=self.files)
            self.files += 1


def _take(stage: Stage, driver: Driver, count: int) -> list[Checkpoint]:
    """As many checkpoints at random moments; the seed is printed, Spark's timing is its own."""
    chance = campaign.chance("moments of checkpoints")
    taken = []
    for _ in range(count):
        time.sleep(chance.uniform(0.0, 1.0))
        taken.append(stage.checkpoint(driver))
    return taken


def _take_until_broken(stage: Stage, driver: Driver, most: int) -> list[Checkpoint]:
    """Checkpoints until the cut of one is inconsistent."""
    for _ in range(most):
        taken = stage.checkpoint(driver)
        if find_inconsistency(stage.store.barriers.cuts(taken.ref)) is not None:
            return [taken]
    return []


Take = Callable[[Stage, Driver, int], list[Checkpoint]]


def _run(
    stage: Stage, mode: str, take: Take, count: int, *options: str
) -> tuple[Counter[tuple[int, int]], list[Checkpoint]]:
    feeder = Feeder(stage.folder / "source")
    driver = stage.start("chain", mode, stage.folder / "source", stage.folder / "out", *options)
    stage.running(driver)
    stage.until(lambda: stage.committed("c") >= 2, driver)
    taken = take(stage, driver, count)
    driver.kill()
    feeder.stop()
    return feeder.rows(), taken


def _drain(stage: Stage, ids: list[int], *options: str) -> dict[int, Counter[tuple[int, int]]]:
    driver = stage.start("chain", "drain", stage.folder / "source", stage.folder / "out", *ids, *options)
    assert driver.wait(600) == 0, driver.said()
    read = {id_: json.loads((stage.folder / "out" / f"restored-{id_}.json").read_text()) for id_ in ids}
    return {id_: Counter(map(tuple, rows)) for id_, rows in read.items()}


def _keep_all(stage: Stage) -> None:
    stage.store.pipelines.change("orders", lambda _: Settings(retention=Retention(last=100)), actor="tester")


@pytest.mark.campaign
@pytest.mark.parametrize("times", campaign.share([1, 2], of=2), ids={1: "read once", 2: "read by two sources"}.get)
def test_checkpoints_at_random_moments_are_each_restored_without_a_row_lost_doubled_or_invented(
    stage: Stage, times: int
) -> None:
    _keep_all(stage)
    options = ("twice",) if times == 2 else ()
    fed, taken = _run(stage, "run", _take, campaign.size(gate=6, long=20), *options)
    truth = Counter({row: count * times for row, count in fed.items()})
    stage.delete_work(1)
    restored = _drain(stage, [each.ref.id for each in taken], *options)
    for id_, rows in restored.items():
        assert not truth - rows, f"{id_} lost {list((truth - rows).elements())[:5]}"
        assert not rows - truth, f"{id_} doubled or invented {list((rows - truth).elements())[:5]}"
    busy = [each.ref for each in taken if in_flight(stage.store.barriers.cuts(each.ref))]
    assert busy, "no checkpoint had anything in flight: this would show nothing"
    assert "IN FLIGHT" in stage.ckpt("show", str(busy[0])), "the ranges are shown"


def test_the_naive_order_is_found_out(stage: Stage) -> None:
    """Upstream first, the same program doubles rows: the test above can fail."""
    _keep_all(stage)
    truth, broken = _run(stage, "naive", _take_until_broken, 10)
    assert broken, "the naive order happened to be consistent every time"
    restored = _drain(stage, [broken[0].ref.id])
    assert restored[broken[0].ref.id] != truth


def test_nothing_that_an_old_driver_still_writes_gets_into_the_tip_that_a_new_one_starts_from(stage: Stage) -> None:
    """Its Python sleeps, so nobody pauses its queries, and its JVM goes on filling channels while they are laid out."""
    feeder = Feeder(stage.folder / "source")
    old = stage.start("chain", "run", stage.folder / "source", stage.folder / "out")
    stage.running(old)
    stage.until(lambda: stage.committed("c") >= 2, old)
    stage.checkpoint(old)
    signal_session(old.process.pid, signal.SIGSTOP)
    stage.until(lambda: stage.committed("a") > stage.committed("c") + 3)  # the JVM goes on
    assert "tip" in stage.ckpt("restore", "orders", "--old-attempt-is-dead")
    new = stage.start("chain", "run", stage.folder / "source", stage.folder / "out")
    stage.until(lambda: stage.committed("c", attempt=2) > stage.committed("c") + 2, new)
    feeder.stop()
    truth = feeder.rows()
    stage.until(lambda: _written(stage).total() >= truth.total(), new, timeout=60)
    assert _written(stage) == truth


def _written(stage: Stage) -> Counter[tuple[int, int]]:
    """What the batches of c have given; one that was in the middle is the same again, under the same number."""
    batches = {}
    for attempt in (1, 2):
        for file in (stage.folder / "out" / f"attempt-{attempt}").glob("[0-9]*"):
            batches[file.name] = json.loads(file.read_text())
    return Counter((k, v) for rows in batches.values() for k, v in rows)
