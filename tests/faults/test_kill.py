"""`kill -9` of a real process before and after every storage and metastore call; then others finish or undo it."""

import multiprocessing
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import count
from pathlib import Path

import pytest

from airflow_provider_ckpt.coordinator.cleanup import cleanup
from airflow_provider_ckpt.coordinator.commit import commit
from airflow_provider_ckpt.coordinator.complete import complete
from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.coordinator.restore import RestoreOptions, restore
from airflow_provider_ckpt.protocol.reasons import FailureReason
from airflow_provider_ckpt.protocol.records import Ref
from airflow_provider_ckpt.protocol.retention import Retention
from airflow_provider_ckpt.testing import CrashAt, ManualClock, kill_this_process, watch_storage, watch_store
from airflow_provider_ckpt.testing.scripted import SINK
from tests.harness import campaign
from tests.house import NAME, SETTINGS, House
from tests.rescue import rescue

pytestmark = pytest.mark.slow

_FORK = multiprocessing.get_context("fork")
_SETTINGS = replace(SETTINGS, retention=Retention(last=1), orphan_grace=timedelta(0), quarantine=timedelta(hours=1))


def _prepare_complete(house: House) -> None:
    driver = house.pipeline(with_sink=True, settings=_SETTINGS)
    house.checkpoint(driver, events=2)
    driver.process(2)
    driver.acknowledge(house.in_flight(driver))


def _complete(context: Context, house: House) -> None:
    complete(context, Ref(NAME, 2))
    commit(context, Ref(NAME, 2), 1, {SINK: house.sink})


def _prepare_savepoint(house: House) -> None:
    driver = house.pipeline(with_sink=True, settings=_SETTINGS)
    house.checkpoint(driver, events=2)
    driver.process(1)
    driver.acknowledge(house.in_flight(driver, savepoint="before-upgrade"))


def _prepare_cleanup(house: House) -> None:
    """Checkpoints to let go, files of a failed one, and a file that nobody can explain."""
    driver = house.pipeline(with_sink=True, settings=_SETTINGS)
    house.checkpoint(driver, events=2)
    driver.process(2)
    failed = house.in_flight(driver)
    driver.acknowledge(failed)
    house.store.checkpoints.fail(failed, FailureReason.ABORTED, "on purpose", actor="tester")
    house.checkpoint(driver, events=1)
    house.checkpoint(driver, events=2)
    house.storage.create(f"{NAME}/what-is-this", b"?")


def _cleanup(context: Context, house: House) -> None:
    cleanup(context, NAME)
    clock = house.clock
    assert clock is not None
    clock.advance(hours=2)
    cleanup(context, NAME)  # the quarantine is over


def _prepare_restore(house: House) -> None:
    """An attempt that died between the decision and its sink's commit."""
    driver = house.pipeline(with_sink=True, settings=_SETTINGS)
    house.checkpoint(driver, events=2)
    driver.process(2)
    ref = house.in_flight(driver)
    driver.acknowledge(ref)
    complete(house.context, ref)


def _restore(context: Context, house: House) -> None:
    restore(context, NAME, RestoreOptions(is_proven_dead=True, committers={SINK: house.sink}))


_CASES: dict[str, tuple[Callable[[House], None], Callable[[Context, House], None]]] = {
    "complete": (_prepare_complete, _complete),
    "complete a savepoint": (_prepare_savepoint, _complete),
    "cleanup": (_prepare_cleanup, _cleanup),
    "restore": (_prepare_restore, _restore),
}


@pytest.mark.campaign
@pytest.mark.parametrize("case", _CASES)
def test_whatever_is_killed_at_any_call_others_finish_or_undo(
    case: str, database: str, copies: Iterator[House], tmp_path: Path
) -> None:
    """In the gate every eighth call, in eight days all of them."""
    prepare, work = _CASES[case]
    prepared = House(database, tmp_path / "prepared")
    prepare(prepared)
    prepared.store.close()
    for moment in count() if campaign.is_long() else count(campaign.seed() % 8, 8):
        house = next(copies)
        shutil.copytree(prepared.folder, house.folder)
        was_killed = _kill_at(moment, house, work)
        house.clock = ManualClock()
        house.__post_init__()
        rescue(house.context, house.clock, NAME, partitions=2, with_sink=True)
        house.store.close()
        if not was_killed:
            break
    assert moment > 15, f"{case} makes more calls than that"


@pytest.fixture
def copies(database: str, copy_database: Callable[[str], str], tmp_path: Path) -> Iterator[House]:
    """Fresh copies of what was prepared, without end."""
    return (House(copy_database(database), tmp_path / f"copy{number}") for number in count())


def _kill_at(moment: int, house: House, work: Callable[[Context, House], None]) -> bool:
    """Run the work in a process of its own that dies at that moment; False when it had nothing left to do."""
    process = _FORK.Process(target=_work_and_die, args=(moment, house, work))
    process.start()
    process.join(60)
    assert process.exitcode in (0, -9), f"ended with {process.exitcode} instead of being killed"
    return process.exitcode == -9


def _work_and_die(moment: int, house: House, work: Callable[[Context, House], None]) -> None:
    crash = CrashAt(moment, kill_this_process)
    store, storage = watch_store(house.store, crash), watch_storage(house.storage, crash)
    work(replace(house.context, store=store, storage=storage, workers=1), house)
