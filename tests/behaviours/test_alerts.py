"""Objectives, the problems they lead to, and that people are told of each once; on both databases."""

from datetime import timedelta

import pytest

from airflow_provider_ckpt.coordinator.complete import complete
from airflow_provider_ckpt.coordinator.sla import judge
from airflow_provider_ckpt.protocol.alerts import AlertState
from airflow_provider_ckpt.protocol.cut import Graph
from airflow_provider_ckpt.protocol.errors import Misused, TryAgain
from airflow_provider_ckpt.protocol.objectives import ProblemKind
from airflow_provider_ckpt.protocol.reasons import FailureReason
from airflow_provider_ckpt.protocol.records import AttemptStatus, DesiredState
from airflow_provider_ckpt.protocol.settings import change_settings
from airflow_provider_ckpt.testing.scripted import ScriptedPipeline
from tests.house import NAME, SETTINGS, House

STALE, SLOW, DOWN, SILENT = ProblemKind.STALE, ProblemKind.SLOW, ProblemKind.DOWN, ProblemKind.SILENT


def a_pipeline(house: House, **settings: str) -> ScriptedPipeline:
    return house.pipeline(settings=change_settings(SETTINGS, settings))


def problems(house: House) -> dict[ProblemKind, str]:
    return {each.kind: each.text for each in judge(house.context, NAME)}


def told(house: House) -> list[tuple[ProblemKind, AlertState]]:
    alerts = house.store.alerts.raise_for(NAME, judge(house.context, NAME), actor="watcher")
    return [(each.kind, each.state) for each in alerts]


# problems


def test_the_newest_checkpoint_may_be_so_old_and_absence_counts_from_the_beginning(house: House) -> None:
    driver = a_pipeline(house, recovery_point="1h", attempt_ttl="1d")
    assert problems(house) == {}
    house.pass_time(minutes=61)
    assert problems(house) == {STALE: "the newest completed checkpoint may be 1h old, and there is none"}
    ref = house.checkpoint(driver)
    assert problems(house) == {}
    house.pass_time(hours=2)
    assert problems(house)[STALE].endswith(f"and {ref} is 2h old")
    house.store.pipelines.desire(NAME, DesiredState.STOPPED, actor="me")
    assert problems(house) == {}, "what is meant to be stopped is well"


def test_a_checkpoint_may_take_so_long_in_flight_and_when_it_is_done(house: House) -> None:
    driver = a_pipeline(house, max_duration="10s", attempt_ttl="1d", timeout="1h")
    ref = house.in_flight(driver)
    house.pass_time(seconds=20)
    assert problems(house)[SLOW] == f"a checkpoint may take 10s, and {ref} has taken 20s"
    driver.acknowledge(ref)
    complete(house.context, ref)
    assert "took 20s" in problems(house)[SLOW]
    house.checkpoint(driver)
    assert SLOW not in problems(house)


def test_failures_in_a_row_are_a_problem_once_they_are_not_tolerable(house: House) -> None:
    driver = a_pipeline(house, tolerable_failures="2")
    for expected in (False, True):
        ref = house.in_flight(driver)
        house.store.checkpoints.fail(ref, FailureReason.DECLINED, "no room", actor="tester")
        assert (ProblemKind.FAILING in problems(house)) is expected


def test_silence_is_a_problem_at_once_and_being_down_when_it_lasts(house: House) -> None:
    house.checkpoint(a_pipeline(house, recovery_time="10m"))
    house.pass_time(minutes=2)
    assert set(problems(house)) == {SILENT}
    house.pass_time(minutes=9)
    assert set(problems(house)) == {SILENT, DOWN}
    assert "it may be down for 10m, and is for 11m" in problems(house)[DOWN]
    house.restore()
    assert DOWN in problems(house), "a restore alone does not bring it back"


def test_without_an_objective_a_failure_is_told_at_once_and_giving_up_always(house: House) -> None:
    house.checkpoint(a_pipeline(house, restart="fixed(1, 0s)"))
    house.store.attempts.end(NAME, 1, AttemptStatus.FAILED, actor="tester", failure="it broke")
    assert problems(house) == {DOWN: "attempt 1 has failed: it broke"}
    house.restore()
    house.store.attempts.end(NAME, 2, AttemptStatus.FAILED, actor="tester", failure="it broke again")
    assert set(problems(house)) == {ProblemKind.GIVEN_UP}


def test_a_cleanup_that_does_not_get_its_turn_is_a_problem(house: House) -> None:
    driver = a_pipeline(house, max_deferral="1m", attempt_ttl="1d", timeout="1d")
    house.in_flight(driver)
    with pytest.raises(TryAgain):
        house.store.leases.acquire_cleanup(NAME, owner="cleaner", token="t")
    house.pass_time(minutes=2)
    assert "has waited for its turn for 2m" in problems(house)[ProblemKind.CLEANUP_BLOCKED]


# alerts


def test_each_problem_is_told_once_reminded_of_and_told_to_be_over(house: House) -> None:
    driver = a_pipeline(house, recovery_point="1h", remind_every="2h", attempt_ttl="1d", max_duration="1m")
    assert told(house) == []
    house.pass_time(minutes=61)
    assert told(house) == [(STALE, AlertState.NEW)]
    assert told(house) == []
    house.in_flight(driver)
    house.pass_time(minutes=5)
    assert told(house) == [(SLOW, AlertState.NEW)], "another problem is told by itself"
    house.pass_time(minutes=116)
    assert told(house) == [(STALE, AlertState.LASTS)]
    assert told(house) == []
    flying = house.store.checkpoints.in_flight(NAME)
    assert flying is not None
    house.store.checkpoints.fail(flying.ref, FailureReason.ABORTED, "by a test", actor="tester")
    house.checkpoint(driver)
    assert set(told(house)) == {(STALE, AlertState.OVER), (SLOW, AlertState.OVER)}
    assert told(house) == []
    assert house.store.alerts.open(NAME) == {}


def test_nobody_is_told_during_maintenance_and_what_is_left_is_told_after_it(house: House) -> None:
    a_pipeline(house, recovery_point="1h", attempt_ttl="1d")
    house.store.alerts.silence(NAME, timedelta(hours=2), actor="me", reason="a new disk")
    house.pass_time(minutes=90)
    assert told(house) == []
    house.pass_time(minutes=31)
    assert told(house) == [(STALE, AlertState.NEW)]
    house.store.alerts.silence(NAME, timedelta(hours=2), actor="me", reason="again")
    assert house.store.alerts.silent_until(NAME) is not None
    house.store.alerts.end_silence(NAME, actor="me")
    assert house.store.alerts.silent_until(NAME) is None


def test_a_failure_is_over_when_it_runs_again_not_when_that_is_planned(house: House) -> None:
    house.checkpoint(a_pipeline(house))
    house.store.attempts.end(NAME, 1, AttemptStatus.FAILED, actor="tester", failure="it broke")
    assert told(house) == [(DOWN, AlertState.NEW)]
    house.restore()
    assert told(house) == []
    house.store.attempts.claim(NAME, 2, "driver", Graph(()))
    assert told(house) == [(DOWN, AlertState.OVER)]


def test_without_reminders_it_is_told_once(house: House) -> None:
    a_pipeline(house, recovery_point="1h", remind_every="none", attempt_ttl="1000d")
    house.pass_time(days=100)
    assert told(house) == [(STALE, AlertState.NEW)]
    house.pass_time(days=100)
    assert told(house) == []


def test_bad_objectives_are_refused() -> None:
    with pytest.raises(Misused, match="recovery_point"):
        change_settings(SETTINGS, {"recovery_point": "0s"})
    with pytest.raises(Misused, match="recovery_time"):
        change_settings(SETTINGS, {"recovery_time": "soon"})
