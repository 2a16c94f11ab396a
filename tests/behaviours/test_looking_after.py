"""What those who look after pipelines ask: events, silence, pulses, diagnoses, objectives; on both databases."""

from datetime import timedelta

import pytest

from airflow_provider_ckpt.coordinator.advising import adapt, advised
from airflow_provider_ckpt.coordinator.complete import complete
from airflow_provider_ckpt.coordinator.declaring import declare
from airflow_provider_ckpt.coordinator.diagnosis import Diagnosis, Need, diagnose
from airflow_provider_ckpt.coordinator.health import health
from airflow_provider_ckpt.metastore import feel, look_closer
from airflow_provider_ckpt.protocol.errors import Misused
from airflow_provider_ckpt.protocol.records import AttemptStatus, DesiredState, LeaseKind, Ref
from airflow_provider_ckpt.protocol.settings import change_settings
from tests.house import NAME, SETTINGS, House

COMPLETED = frozenset({"checkpoint.completed"})


def a_diagnosis(house: House) -> Diagnosis:
    return diagnose(house.context, NAME, jitter=0.0)


def a_checkpointed_pipeline(house: House, **settings: str) -> None:
    house.checkpoint(house.pipeline(settings=change_settings(SETTINGS, settings)))


def fail(house: House, number: int) -> None:
    assert house.store.attempts.end(NAME, number, AttemptStatus.FAILED, actor="tester", failure="it broke")


# events


def test_events_since_a_position_come_in_order_for_any_number_of_pipelines(house: House) -> None:
    driver = house.pipeline()
    others = {f"other-{number}": 0 for number in range(700)}
    began = house.store.events.position(NAME)
    refs = [house.checkpoint(driver) for _ in range(3)]
    found = house.store.events.since({**others, NAME: began}, COMPLETED)
    assert [each.checkpoint for each in found] == [ref.id for ref in refs]
    assert house.store.events.since({NAME: found[1].seq}, COMPLETED) == found[2:]
    assert house.store.events.since({NAME: house.store.events.position(NAME)}, COMPLETED) == []
    assert house.store.events.since({}, COMPLETED) == []


def test_the_last_event_of_a_kind_is_found_for_the_pipeline_or_one_attempt(house: House) -> None:
    a_checkpointed_pipeline(house)
    fail(house, 1)
    house.restore()
    last = house.store.events.last(NAME, "attempt.planned")
    assert last is not None
    assert last.attempt == 2
    first = house.store.events.last(NAME, "attempt.planned", attempt=1)
    assert first is not None
    assert first.attempt == 1
    assert house.store.events.last(NAME, "attempt.planned", attempt=3) is None


# silence, progress, pulses


def test_silence_is_noted_once_and_only_of_what_should_run(house: House) -> None:
    house.pipeline()
    assert house.store.attempts.note_silence(actor="watcher") == []
    house.pass_time(seconds=61)
    (noted,) = house.store.attempts.note_silence(actor="watcher")
    assert noted.number == 1
    assert house.store.attempts.note_silence(actor="watcher") == []
    event = house.store.events.last(NAME, "attempt.silent")
    assert event is not None
    assert (event.attempt, event.actor) == (1, "watcher")


def test_a_stopped_pipeline_may_be_silent(house: House) -> None:
    house.pipeline()
    house.store.pipelines.desire(NAME, DesiredState.STOPPED, actor="me")
    house.pass_time(hours=1)
    assert house.store.attempts.note_silence(actor="watcher") == []


def test_only_the_driver_itself_can_note_its_progress(house: House) -> None:
    house.pipeline()
    house.store.attempts.note_progress(NAME, 1, "somebody else")
    assert house.store.events.last(NAME, "attempt.progressed") is None
    house.store.attempts.note_progress(NAME, 1, "driver")
    assert house.store.events.last(NAME, "attempt.progressed", attempt=1) is not None


def test_the_pulses_of_many_attempts_are_felt_at_once(house: House) -> None:
    a_checkpointed_pipeline(house)
    first, missing = (NAME, 1), (NAME, 7)
    assert set(feel(house.store.engine, [first, missing])) == {first}
    assert not feel(house.store.engine, [first])[first].has_ended
    house.pass_time(seconds=61)
    assert feel(house.store.engine, [first])[first].is_silent
    house.restore()
    pulses = feel(house.store.engine, [first, (NAME, 2)])
    assert pulses[first].has_ended
    assert not pulses[first].is_current
    assert not pulses[NAME, 2].has_ended


def test_a_closer_look_counts_and_names_one_that_is_missing(house: House) -> None:
    driver = house.pipeline(partitions=3)
    ref = house.in_flight(driver)
    first, *rest = sorted(driver.participants)
    driver.acknowledge(ref, [first])
    closeness = look_closer(house.store.engine, [ref, Ref(NAME, 99)])
    assert set(closeness) == {ref}
    assert (closeness[ref].acked, closeness[ref].expected) == (1, len(rest) + 1)
    assert closeness[ref].waits_for == rest[0]
    driver.acknowledge(ref, rest)
    assert look_closer(house.store.engine, [ref])[ref].waits_for is None


# diagnoses


def test_a_pipeline_that_was_never_started_is_to_be_started(house: House) -> None:
    declare(house.store, NAME, {}, actor="me")
    assert a_diagnosis(house).need is Need.RESTORE


def test_a_living_attempt_needs_nothing_and_a_silent_one_a_restore(house: House) -> None:
    house.pipeline()
    assert a_diagnosis(house).need is Need.NOTHING
    house.pass_time(minutes=5)
    found = a_diagnosis(house)
    assert found.need is Need.RESTORE
    assert found.why.startswith("Attempt 1 has been silent for")


@pytest.mark.parametrize("status", [AttemptStatus.FINISHED, AttemptStatus.STOPPED])
def test_what_has_ended_well_is_left_alone(house: House, status: AttemptStatus) -> None:
    house.pipeline()
    house.store.attempts.end(NAME, 1, status, actor="tester")
    assert a_diagnosis(house).need is Need.NOTHING


def test_a_planned_attempt_gets_time_to_find_its_driver(house: House) -> None:
    a_checkpointed_pipeline(house)
    fail(house, 1)
    house.restore()
    assert a_diagnosis(house).need is Need.NOTHING
    house.pass_time(minutes=2)
    assert a_diagnosis(house).need is Need.RESTORE


def test_nobody_restores_beside_another_restore_and_a_dead_one_is_gone_on_with(house: House) -> None:
    house.pipeline()
    fail(house, 1)
    lease = house.store.leases.acquire_restore(NAME, owner="somebody", token="t")
    assert lease.kind is LeaseKind.RESTORE
    assert a_diagnosis(house).why == "somebody is restoring it."
    house.store.attempts.fence(lease, actor="somebody")
    house.pass_time(minutes=5)
    found = a_diagnosis(house)
    assert (found.need, found.attempt) == (Need.RESTORE, 2)


def test_failures_count_from_when_a_person_last_started_it(house: House) -> None:
    a_checkpointed_pipeline(house, restart="fixed(1, 10s)")
    fail(house, 1)
    assert a_diagnosis(house).after == timedelta(seconds=10)
    house.pass_time(seconds=4)
    assert a_diagnosis(house).after == timedelta(seconds=6)
    house.restore()
    fail(house, 2)
    assert a_diagnosis(house).need is Need.PERSON
    house.pass_time(seconds=1)
    house.store.pipelines.desire(NAME, DesiredState.RUNNING, actor="me")
    assert a_diagnosis(house).need is Need.RESTORE


def test_an_attempt_that_fell_silent_counts_as_a_failure_also_after_it_was_replaced(house: House) -> None:
    a_checkpointed_pipeline(house, restart="fixed(1, 0s)")
    house.pass_time(minutes=5)
    house.restore()
    fail(house, 2)
    assert a_diagnosis(house).need is Need.PERSON


# declarations, advice, objectives


def test_a_declaration_makes_a_pipeline_once_and_changes_only_what_it_says(house: House) -> None:
    declare(house.store, NAME, {"interval": "7m"}, actor="me")
    declare(house.store, NAME, {"keep_last": "9"}, actor="me")
    settings = declare(house.store, NAME, {"keep_last": "9"}, actor="me").settings
    assert (settings.interval, settings.retention.last) == (timedelta(minutes=7), 9)
    changes = [each for each in house.store.events.newest(NAME) if each.kind == "pipeline.changed"]
    assert len(changes) == 1
    with pytest.raises(Misused):
        declare(house.store, NAME, {"intervall": "7m"}, actor="me")


def test_the_advice_rests_on_the_pipelines_own_history(house: House) -> None:
    driver = house.pipeline()
    bounds = timedelta(seconds=40), timedelta(seconds=50)
    assert advised(house.context, NAME, bounds=bounds) is None
    ref = house.in_flight(driver)
    house.pass_time(seconds=2)
    driver.acknowledge(ref)
    complete(house.context, ref)
    house.pass_time(hours=1)
    advice = adapt(house.context, NAME, bounds=bounds)
    assert advice is not None
    assert advice.cost == timedelta(seconds=2)
    interval = house.store.pipelines.get(NAME).settings.interval
    assert interval == timedelta(seconds=round(advice.interval.total_seconds()))


# a driver that is on its way


def test_an_attempt_that_was_submitted_has_its_own_time_to_be_claimed(house: House) -> None:
    """In a cluster's queue it is not heard of, for longer than a heartbeat may be missed: nobody replaces it."""
    house.store.pipelines.create(NAME, SETTINGS, identity="tester", actor="tester")
    house.restore()
    assert house.store.attempts.note_submitted(NAME, 1)
    assert house.store.attempts.note_submitted(NAME, 1, {"kind": "yarn"}, "application_1")
    house.pass_time(minutes=9)
    waits = a_diagnosis(house)
    assert (waits.need, waits.why) == (Need.NOTHING, "Attempt 1 waits for its driver, submitted as application_1.")
    assert not feel(house.store.engine, [(NAME, 1)])[NAME, 1].has_ended
    assert health(house.context, NAME).problems == ()
    house.pass_time(minutes=1, seconds=1)
    assert a_diagnosis(house).need is Need.RESTORE
    assert feel(house.store.engine, [(NAME, 1)])[NAME, 1].is_unclaimed
    (problem,) = health(house.context, NAME).problems
    assert str(problem) == "attempt 1 was submitted as application_1 and no driver has claimed it within 10m"
    house.restore()
    assert not house.store.attempts.note_submitted(NAME, 1, {"kind": "yarn"}, "application_1"), "it was replaced"


def test_an_attempt_that_nobody_submits_is_planned_anew_soon(house: House) -> None:
    house.store.pipelines.create(NAME, SETTINGS, identity="tester", actor="tester")
    house.restore()
    house.pass_time(minutes=1, seconds=1)
    assert a_diagnosis(house).need is Need.RESTORE


def test_a_claimed_attempt_is_judged_by_its_heartbeat_alone(house: House) -> None:
    driver = house.pipeline()
    house.store.attempts.note_submitted(NAME, 1)
    house.pass_time(hours=1)
    driver.tick()
    assert a_diagnosis(house).need is Need.NOTHING
    assert not feel(house.store.engine, [(NAME, 1)])[NAME, 1].has_ended
