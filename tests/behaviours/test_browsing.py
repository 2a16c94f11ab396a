"""What a page reads of a store, in bounded pieces, on both databases."""

from collections import Counter
from datetime import timedelta

import pytest

from airflow_provider_ckpt.coordinator.holdings import hold
from airflow_provider_ckpt.coordinator.marks import Marker
from airflow_provider_ckpt.coordinator.recoveries import forecast
from airflow_provider_ckpt.protocol.errors import NotFound
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.reasons import FailureReason
from airflow_provider_ckpt.protocol.records import AttemptStatus, Kind, ParticipantKind, Ref
from airflow_provider_ckpt.testing.scripted import QUERY
from tests.house import NAME, House


def _failed(house: House, driver: object) -> Ref:
    ref = house.in_flight(driver)  # type: ignore[arg-type]
    house.store.checkpoints.fail(ref, FailureReason.ABORTED, "not now", actor="tester")
    return ref


def test_a_page_of_the_history_can_be_of_one_kind_and_one_attempt(house: House) -> None:
    driver = house.pipeline()
    house.checkpoint(driver)
    house.checkpoint(driver, savepoint="safe")
    _failed(house, driver)
    house.restore(to=1)
    second = house.driver(claim="second")
    second.start()
    house.checkpoint(second)

    def ids(**wanted: object) -> list[int]:
        return [each.ref.id for each in house.store.checkpoints.page(NAME, **wanted).checkpoints]  # type: ignore[arg-type]

    assert ids(kind=Kind.SAVEPOINT) == [2]
    assert ids(kind=Kind.CHECKPOINT) == [4, 3, 1]
    assert ids(attempt=1) == [3, 2, 1]
    assert ids(attempt=1, kind=Kind.CHECKPOINT, phases=frozenset({Phase.COMPLETED, Phase.FAILED})) == [3, 1]
    assert ids(kind=Kind.SAVEPOINT, before=2) == []


def test_measures_are_a_few_columns_of_the_newest(house: House) -> None:
    driver = house.pipeline()
    house.checkpoint(driver)
    ref = house.in_flight(driver)
    house.pass_time(seconds=3)
    house.store.checkpoints.fail(ref, FailureReason.ABORTED, "not now", actor="tester")
    first, second = house.store.checkpoints.measures(NAME, limit=10)
    assert (first.id, first.phase, first.failure_reason) == (1, Phase.COMPLETED, None)
    assert first.new_bytes is not None
    assert (second.phase, second.failure_reason) == (Phase.FAILED, FailureReason.ABORTED)
    assert second.ended_at is not None
    assert second.ended_at - second.triggered_at == timedelta(seconds=3)
    assert [each.id for each in house.store.checkpoints.measures(NAME, limit=1)] == [2]
    assert house.store.checkpoints.counts(NAME, limit=10) == Counter({Phase.COMPLETED: 1, Phase.FAILED: 1})
    assert house.store.checkpoints.counts(NAME, limit=1) == Counter({Phase.FAILED: 1})


def test_participants_are_counted_by_query_and_kind(house: House) -> None:
    driver = house.pipeline(partitions=3, with_sink=True)
    ref = house.in_flight(driver)
    driver.acknowledge(ref, [f"{QUERY}/source", f"{QUERY}/state/1"])
    found = {group.kind: (group.query, group.acked, group.expected) for group in house.store.acks.groups(ref)}
    assert found == {
        ParticipantKind.SINK: (QUERY, 0, 1),
        ParticipantKind.SOURCE: (QUERY, 1, 1),
        ParticipantKind.STATE: (QUERY, 1, 3),
    }
    last = {group.kind: group.last_acked_at for group in house.store.acks.groups(ref)}
    assert house.clock is not None
    assert last == {
        ParticipantKind.SINK: None,
        ParticipantKind.SOURCE: house.clock(),
        ParticipantKind.STATE: house.clock(),
    }


def test_the_slowest_are_searched_and_skipped_over_by_the_store(house: House) -> None:
    driver = house.pipeline(partitions=4)
    ref = house.in_flight(driver)
    for name in (f"{QUERY}/state/2", f"{QUERY}/source", f"{QUERY}/state/0"):
        house.pass_time(seconds=1)
        driver.acknowledge(ref, [name])
    order = [f"{QUERY}/{name}" for name in ("state/1", "state/3", "state/0", "source", "state/2")]
    slowest = house.store.acks.slowest
    assert [row.participant for row in slowest(ref, limit=9)] == order
    assert [row.participant for row in slowest(ref, limit=2, offset=2)] == order[2:4]
    assert [row.participant for row in slowest(ref, limit=9, search="source")] == [f"{QUERY}/source"]
    assert slowest(ref, limit=9, search="s_ate") == []  # a search is no pattern
    assert slowest(ref, limit=9, query="another") == []
    assert house.store.acks.get(ref, order[0]).acked_at is None
    with pytest.raises(NotFound, match="has no participant 'nobody'"):
        house.store.acks.get(ref, "nobody")


def test_those_who_are_often_late_are_named_first_among_many(house: House) -> None:
    driver = house.pipeline(partitions=4)
    ref = house.in_flight(driver)
    first = house.store.acks.pending(ref, limit=1, first=[f"{QUERY}/state/3"])
    assert [row.participant for row in first] == [f"{QUERY}/state/3"]
    assert [row.participant for row in house.store.acks.pending(ref, limit=1)] == [f"{QUERY}/source"]


def test_a_curve_of_acknowledgements_takes_each_so_manieth(house: House) -> None:
    driver = house.pipeline(partitions=30)
    ref = house.in_flight(driver)
    assert house.store.acks.arrivals(ref, every=10) == []
    assert house.clock is not None
    begin = house.clock()
    for name in driver.participants:
        house.pass_time(seconds=1)
        driver.acknowledge(ref, [name])
    found = house.store.acks.arrivals(ref, every=10)
    assert found == [(count, begin + timedelta(seconds=count)) for count in (1, 11, 21, 31)]


def test_the_last_events_of_a_kind_are_found_among_many_others(house: House) -> None:
    driver = house.pipeline()
    house.store.attempts.note_progress(NAME, 1, "driver")
    for _ in range(3):
        house.checkpoint(driver)
    assert [event.attempt for event in house.store.events.of_kind(NAME, "attempt.progressed", limit=5)] == [1]
    completed = house.store.events.of_kind(NAME, "checkpoint.completed", limit=2)
    assert [event.checkpoint for event in completed] == [3, 2]
    older = house.store.events.newest(NAME, before=completed[-1].seq, limit=1)
    assert older[0].seq < completed[-1].seq


def test_attempts_come_newest_first_and_in_pages(house: House) -> None:
    house.checkpoint(house.pipeline())
    for _ in range(2):
        house.restore()
    assert [each.number for each in house.store.attempts.newest(NAME, limit=2)] == [3, 2]
    assert [each.number for each in house.store.attempts.newest(NAME, before=2)] == [1]


def test_a_recovery_lasts_from_the_end_to_the_first_batch(house: House) -> None:
    driver = house.pipeline()
    ref = house.checkpoint(driver)
    house.store.attempts.end(NAME, 1, AttemptStatus.FAILED, actor="tester")
    house.pass_time(seconds=20)
    house.restore(to=ref.id)
    second = house.driver(claim="second")
    second.start()
    house.pass_time(seconds=10)
    assert forecast(house.context, NAME, house.get(ref)).recovery is None  # it is not back yet
    house.store.attempts.note_progress(NAME, 2, "second")
    found = forecast(house.context, NAME, house.get(ref))
    assert (found.recovery, found.recoveries) == (timedelta(seconds=30), 1)
    assert found.replay == timedelta(seconds=30)


def test_what_a_person_stopped_was_not_recovered(house: House) -> None:
    driver = house.pipeline()
    house.checkpoint(driver)
    house.store.attempts.end(NAME, 1, AttemptStatus.STOPPED, actor="tester")
    house.restore()
    second = house.driver(claim="second")
    second.start()
    house.store.attempts.note_progress(NAME, 2, "second")
    assert forecast(house.context, NAME, None).recoveries == 0


def test_shared_files_are_counted_once(house: House) -> None:
    driver = house.pipeline(partitions=8)
    house.checkpoint(driver, events=8)
    house.checkpoint(driver, events=2)
    held = hold(house.context, NAME)
    first, second = held.holdings
    assert (first.files, second.files, held.files) == (8, 8, 10)
    assert 0 < second.unique_bytes < second.full_bytes
    assert held.bytes == first.full_bytes + second.unique_bytes


def test_a_manifest_that_can_not_be_read_is_said_and_stops_nothing(house: House) -> None:
    driver = house.pipeline()
    ref = house.checkpoint(driver)
    house.checkpoint(driver)
    decision = house.get(ref).decision
    assert decision is not None
    house.storage.delete(decision.manifest_path)
    first, second = hold(house.context, NAME).holdings
    assert first.problem is not None
    assert "is missing" in first.problem
    assert second.files == 2


def test_what_lies_on_a_branch_left_behind_is_marked(house: House) -> None:
    driver = house.pipeline()
    first, second = house.checkpoint(driver), house.checkpoint(driver)
    house.store.pins.add(first, owner="tester", reason="mine")
    house.restore(to=first.id)
    marker = Marker(house.store, NAME)
    assert "pinned" in marker.marks(house.get(first))
    assert marker.marks(house.get(second)) == ["abandoned"]
