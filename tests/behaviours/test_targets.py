"""Real targets behind a scripted pipeline: a commit continues what its checkpoint saw, or is refused with a way out."""

import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.utils.config import Config

from airflow_provider_ckpt.cli import main
from airflow_provider_ckpt.coordinator.commit import resolve
from airflow_provider_ckpt.coordinator.complete import complete
from airflow_provider_ckpt.coordinator.rebuild import rebuild
from airflow_provider_ckpt.protocol.errors import Refused
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.records import AttemptStatus, Ref, SinkStatus
from airflow_provider_ckpt.spark.sinks import FilesSink, Name
from airflow_provider_ckpt.spark.sinks.opening import reach_sinks_of
from airflow_provider_ckpt.testing.scripted import SINK
from tests.house import NAME, SETTINGS, House
from tests.table_pipeline import TablePipeline, go_back
from tests.unit.spark.test_table_sinks import Delta, Files, Iceberg

Subject = Delta | Iceberg | Files


@pytest.fixture(params=[Delta, Iceberg])
def target(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Subject:
    """One that can go back."""
    return _made(request.param, tmp_path, monkeypatch)


def _made(kind: Callable[[Path], Subject], folder: Path, monkeypatch: pytest.MonkeyPatch) -> Subject:
    subject = kind(folder)
    for key, value in getattr(subject, "properties", {}).items():  # for whoever reaches it by its description
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{key.upper()}", value)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    return subject


def _start(house: House, target: Subject, claim: str) -> TablePipeline:
    driver = TablePipeline(house.context, target.open(), house.folder.parent / "work", claim)
    driver.start()
    return driver


def _first(house: House, target: Subject) -> TablePipeline:
    house.store.pipelines.create(NAME, SETTINGS, identity="tester", actor="tester")
    go_back(house)
    return _start(house, target, "first")


def _well(house: House, driver: TablePipeline, target: Subject) -> None:
    """It goes on, and has each event once."""
    house.checkpoint(driver, events=2)
    assert sorted(target.read()) == list(range(1, driver.position + 1))


def _roll_back_and_die(house: House, target: Subject) -> None:
    """Three checkpoints; an attempt that goes back to the first one, and has no checkpoint of its own."""
    driver = _first(house, target)
    for _ in range(3):
        house.checkpoint(driver, events=3)
    assert sorted(target.read()) == list(range(1, 10))
    go_back(house, to=1)
    second = _start(house, target, "second")
    assert sorted(target.read()) == [1, 2, 3]
    second.process(2)


@pytest.mark.parametrize("can_reach", [True, False], ids=["targets are asked", "targets are out of reach"])
def test_a_roll_back_and_then_a_lost_metastore_lose_no_row(
    house: House, target: Subject, new_database: Callable[[str], str], can_reach: bool
) -> None:
    _roll_back_and_die(house, target)
    rebuilt = House(new_database("sqlite"), house.folder)
    if can_reach:
        rebuild(rebuilt.context, reach=reach_sinks_of)
    else:
        rebuild(rebuilt.context)
    assert (rebuilt.get(Ref(NAME, 3)).phase is Phase.COMPLETED) is can_reach, "what was left behind is not reopened"
    go_back(rebuilt)
    third = _start(rebuilt, target, "third")
    assert third.position == (3 if can_reach else 9), "back where the targets are, or forward again with them"
    _well(rebuilt, third, target)
    rebuilt.store.close()


def test_a_target_that_can_not_go_forward_again_refuses_and_the_commands_that_it_prints_lead_out(
    wall_house: House, tmp_path: Path, new_database: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else has written since: what is printed is typed, word by word."""
    target = Delta(tmp_path)
    _roll_back_and_die(wall_house, target)
    write_deltalake(target.path, pa.table({"n": pa.array([1000], pa.int64())}), mode="append")
    rebuilt = House(new_database("sqlite"), wall_house.folder, clock=None)
    rebuild(rebuilt.context)
    go_back(rebuilt)
    with pytest.raises(Refused) as refused:
        _start(rebuilt, target, "third")
    assert str(refused.value) == (
        "The target of orders/totals/sink is at checkpoint 1, and orders/3 continues checkpoint 2: what lies between "
        "is not there, and nothing is committed. Bring the target back to checkpoint 2; or give this commit up with "
        "`ckpt resolve orders/3 --sink totals/sink --as abandoned --reason …`, and go back to what the target has with "
        "`ckpt restore orders --to 1`."
    )
    assert sorted(target.read()) == [1, 2, 3, 1000], "nothing was committed"
    _fail(rebuilt, str(refused.value))
    monkeypatch.setenv("CKPT_METASTORE", rebuilt.url)
    monkeypatch.setenv("CKPT_STORAGE", str(rebuilt.folder))
    for command in re.findall(r"`ckpt (.*?)`", str(refused.value)):
        assert main(command.split()) == 0, command
    driver = _start(rebuilt, target, "fourth")
    rebuilt.checkpoint(driver, events=4)
    assert sorted(target.read()) == [*range(1, driver.position + 1), 1000]
    rebuilt.store.close()


def _fail(house: House, why: str) -> None:
    """As the program does that was refused."""
    current = house.store.pipelines.get(NAME).current_attempt or 0
    house.store.attempts.end(NAME, current, AttemptStatus.FAILED, actor="tester", failure=why)


def test_a_commit_that_finds_its_target_elsewhere_stays_open_and_says_how_it_ends(
    house: House, target: Subject
) -> None:
    """The table was brought back from a copy while the driver ran: neither the driver nor a restore commits on it."""
    driver = _first(house, target)
    house.checkpoint(driver, events=2)
    house.checkpoint(driver, events=2)
    target.open().roll_back(Name(pipeline=NAME, sink=SINK), 1, 1)
    driver.process(2)
    ref = house.in_flight(driver)
    driver.acknowledge(ref)
    complete(house.context, ref)
    driver.commit(ref)
    (sink,) = house.store.sinks.of(ref)
    assert house.get(ref).phase is Phase.COMMITTING
    assert "is at checkpoint 1, and orders/3 continues checkpoint 2" in (sink.last_error or "")
    assert sorted(target.read()) == [1, 2]
    go_back(house)
    assert house.get(ref).phase is Phase.COMMITTING, "nor does a restore commit it"
    assert sorted(target.read()) == [1, 2]
    with pytest.raises(Refused, match="give this commit up with `ckpt resolve orders/3 --sink totals/sink --as aband"):
        _start(house, target, "second")
    resolve(house.context, ref, SINK, SinkStatus.ABANDONED, reason="it said so")
    go_back(house, to=1)
    _well(house, _start(house, target, "third"), target)


def test_a_restored_backup_of_the_metastore_is_noticed_and_a_rebuild_leads_out(
    house: House, target: Subject, copy_database: Callable[[str], str]
) -> None:
    driver = _first(house, target)
    house.checkpoint(driver, events=2)
    house.store.close()
    backup = copy_database(house.url)
    house.__post_init__()
    driver = TablePipeline(house.context, target.open(), house.folder.parent / "work2", "first")
    go_back(house)
    driver.start()
    house.checkpoint(driver, events=2)
    house.checkpoint(driver, events=2)
    restored = House(backup, house.folder, clock=house.clock, _keys=100)
    go_back(restored)
    with pytest.raises(Refused, match=r"older than its targets.* `ckpt rebuild orders`"):
        _start(restored, target, "second")
    assert len(rebuild(restored.context, reach=reach_sinks_of).added) == 2
    go_back(restored)
    again = TablePipeline(restored.context, target.open(), house.folder.parent / "work3", "third")
    again.start()
    assert again.position == 6
    _well(restored, again, target)
    restored.store.close()


def test_a_backup_from_before_the_last_attempts_is_noticed_too(
    house: House, target: Subject, copy_database: Callable[[str], str]
) -> None:
    """No checkpoint is missing, and yet the target knows attempts that this metastore has not numbered."""
    driver = _first(house, target)
    house.checkpoint(driver, events=2)
    house.store.close()
    backup = copy_database(house.url)
    house.__post_init__()
    for number in range(3):
        go_back(house)
        TablePipeline(house.context, target.open(), house.folder.parent / f"work{number}", "next").start()
    restored = House(backup, house.folder, clock=house.clock, _keys=100)
    go_back(restored)
    with pytest.raises(Refused, match=r"older than its targets.* `ckpt rebuild orders`"):
        TablePipeline(restored.context, target.open(), house.folder.parent / "work8", "second").start()
    assert rebuild(restored.context, reach=reach_sinks_of).added == ()
    go_back(restored)
    again = TablePipeline(restored.context, target.open(), house.folder.parent / "work9", "third")
    again.start()
    _well(restored, again, target)
    restored.store.close()


# a checkpoint without rows


def _versions(target: Subject) -> int:
    if isinstance(target, Delta):
        return DeltaTable(target.path).version()
    return len(target.load().metadata.snapshots) if isinstance(target, Iceberg) else 0


def test_a_query_that_has_done_nothing_yet_holds_nobody_up(house: House, target: Subject) -> None:
    """Its table does not exist."""
    driver = _first(house, target)
    ref = house.checkpoint(driver, events=0)
    assert house.get(ref).phase is Phase.COMPLETED
    (sink,) = house.store.sinks.of(ref)
    assert (sink.status, sink.last_error) == (SinkStatus.NOTHING, None)
    house.checkpoint(driver, events=0)
    _well(house, driver, target)


def test_what_an_older_version_has_left_waiting_for_a_table_that_is_not_there_is_done(
    house: House, target: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever was stuck by it comes with the next version to get out."""
    driver = _first(house, target)
    with monkeypatch.context() as older:
        older.setattr("airflow_provider_ckpt.metastore.checkpoints.has_nothing", lambda staged: False)
        ref = house.in_flight(driver)
        driver.acknowledge(ref)
        complete(house.context, ref)
    assert house.get(ref).phase is Phase.COMMITTING
    go_back(house)
    assert house.get(ref).phase is Phase.COMPLETED
    _well(house, _start(house, target, "second"), target)


def test_an_idle_pipeline_adds_no_version_and_every_checkpoint_of_it_can_be_gone_back_to(
    house: House, target: Subject
) -> None:
    driver = _first(house, target)
    house.checkpoint(driver, events=2)
    before = _versions(target)
    idle = [house.checkpoint(driver, events=0) for _ in range(3)]
    assert _versions(target) == before
    assert target.open().marker(Name(pipeline=NAME, sink=SINK)).committed == 1
    house.checkpoint(driver, events=2)
    go_back(house, to=idle[1].id)
    second = _start(house, target, "second")
    assert sorted(target.read()) == [1, 2]
    _well(house, second, target)
    last = house.checkpoint(second, events=0)
    go_back(house)
    third = _start(house, target, "third")
    assert (third.position, third.seat.published) == (4, last.id - 1)
    _well(house, third, target)


def test_a_sink_that_had_nothing_to_commit_goes_back_to_nothing(house: House, target: Subject) -> None:
    driver = _first(house, target)
    empty = house.checkpoint(driver, events=0)
    house.checkpoint(driver, events=2)
    go_back(house, to=empty.id)
    second = _start(house, target, "second")
    assert target.read() == []
    _well(house, second, target)


def test_an_idle_checkpoint_is_found_again_by_a_rebuild(
    house: House, target: Subject, new_database: Callable[[str], str]
) -> None:
    driver = _first(house, target)
    house.checkpoint(driver, events=2)
    idle = house.checkpoint(driver, events=0)
    rebuilt = House(new_database("sqlite"), house.folder)
    rebuild(rebuilt.context, reach=reach_sinks_of)
    assert rebuilt.get(idle).phase is Phase.COMPLETED, "there is nothing to commit"
    go_back(rebuilt)
    _well(rebuilt, _start(rebuilt, target, "second"), target)
    rebuilt.store.close()


# what a person gave up, and what a person accepted


def test_after_a_commit_was_given_up_the_next_one_continues_what_the_target_has(
    house: House, target: Subject, new_database: Callable[[str], str]
) -> None:
    driver = _first(house, target)
    house.checkpoint(driver, events=2)
    driver.process(2)
    ref = house.in_flight(driver)
    driver.acknowledge(ref)
    complete(house.context, ref)
    resolve(house.context, ref, SINK, SinkStatus.ABANDONED, reason="it burnt down")
    driver.completed(ref)
    newest = house.checkpoint(driver, events=2)
    assert sorted(target.read()) == [1, 2, 5, 6]
    go_back(house, to=ref.id)
    second = _start(house, target, "second")
    assert sorted(target.read()) == [1, 2], "with the one that was given up it was there"
    house.checkpoint(second, events=2)
    assert sorted(target.read()) == [1, 2, 5, 6]
    assert newest.id < house.store.pipelines.get(NAME).next_checkpoint


def test_a_commit_that_a_person_called_committed_and_was_not_does_not_hold_up_the_next(
    house: House, target: Subject
) -> None:
    driver = _first(house, target)
    house.checkpoint(driver, events=2)
    driver.process(2)
    ref = house.in_flight(driver)
    driver.acknowledge(ref)
    complete(house.context, ref)
    resolve(house.context, ref, SINK, SinkStatus.COMMITTED, reason="I have copied it by hand")
    driver.completed(ref)
    house.checkpoint(driver, events=2)
    assert sorted(target.read()) == [1, 2, 5, 6]


def test_accepted_duplicates_are_continued_where_the_target_is(
    house: House, tmp_path: Path, new_database: Callable[[str], str]
) -> None:
    """Files that somebody has taken can not go back. After a lost metastore they go on, without asking again."""
    target = Files(tmp_path)
    driver = _first(house, target)
    for _ in range(3):
        house.checkpoint(driver, events=2)
    taken = target.path / FilesSink(str(target.path)).committed_files(driver.seat.name)[3][0]
    taken.rename(tmp_path / "taken")
    go_back(house, to=1, accept=SINK)
    second = _start(house, target, "second")
    assert second.seat.published == 3
    second.process(1)
    (tmp_path / "taken").rename(taken)
    rebuilt = House(new_database("sqlite"), house.folder)
    rebuild(rebuilt.context, reach=reach_sinks_of)
    go_back(rebuilt)
    third = _start(rebuilt, target, "third")
    _well(rebuilt, third, target)
    rebuilt.store.close()
