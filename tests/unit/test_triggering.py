"""Whether a checkpoint may start now: every reason to skip, and which one is told first."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.reasons import CLEANUP_SKIPS, SkipReason
from airflow_provider_ckpt.protocol.records import (
    Attempt,
    AttemptStatus,
    Checkpoint,
    DesiredState,
    Kind,
    Lease,
    LeaseKind,
    Pipeline,
    Ref,
    Rung,
    TriggerRequest,
)
from airflow_provider_ckpt.protocol.settings import Settings
from airflow_provider_ckpt.protocol.triggering import Situation, Skip, goes_before_cleanup, why_skip

quick = examples(max_examples=60, deadline=None)

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
INSTANT = timedelta(microseconds=1)
SETTINGS = Settings(interval=5 * MINUTE, min_pause=2 * MINUTE, attempt_ttl=MINUTE, max_deferral=10 * MINUTE)

REQUEST = TriggerRequest(pipeline="orders", key="dag/run/task", requested_by="dag", when_due=True)

PIPELINE = Pipeline(
    name="orders",
    identity="0123456789abcdef",
    settings=SETTINGS,
    desired_state=DesiredState.RUNNING,
    current_attempt=1,
    next_checkpoint=8,
    revision=0,
    deferred_since=None,
    cleanup_waiting_since=None,
    created_at=NOW - 100 * MINUTE,
)
ATTEMPT = Attempt(
    pipeline="orders",
    number=1,
    status=AttemptStatus.RUNNING,
    rung=Rung.FRESH,
    parent=None,
    fork_at=None,
    restored_from=None,
    application_id="app-1",
    host="driver-1",
    numbered_at=NOW - 100 * MINUTE,
    planned_at=NOW - 100 * MINUTE,
    claimed_at=NOW - 100 * MINUTE,
    heartbeat_at=NOW,
    ended_at=None,
    failure=None,
)
IN_FLIGHT = Checkpoint(
    ref=Ref("orders", 7),
    attempt=1,
    phase=Phase.COMMITTING,
    kind=Kind.CHECKPOINT,
    name=None,
    trigger_key="another",
    retry_of=None,
    requested_by="dag",
    reason="",
    triggered_at=NOW - 20 * MINUTE,
    deadline=NOW,
    frozen_at=None,
    participants=None,
    decision=None,
    decided_at=None,
    ended_at=None,
    failure=None,
    verdict=None,
    verdict_detail=None,
    last_participant=None,
)
QUIET = Situation(
    pipeline=PIPELINE,
    attempt=ATTEMPT,
    in_flight=None,
    cleanup=None,
    restore=None,
    last_triggered_at=NOW - 5 * MINUTE,
    last_ended_at=NOW - 2 * MINUTE,
    now=NOW,
)

Trouble = Callable[[TriggerRequest, Situation], tuple[TriggerRequest, Situation]]


def _lease(kind: LeaseKind) -> Lease:
    expires = NOW + MINUTE
    return Lease(pipeline="orders", kind=kind, owner=f"the {kind} Dag", token="t", acquired_at=NOW, expires_at=expires)


def _with_pipeline(
    seen: Situation,
    *,
    desired_state: DesiredState = DesiredState.RUNNING,
    deferred: timedelta | None = None,
    cleanup_waited: timedelta | None = None,
) -> Situation:
    changed = replace(
        seen.pipeline,
        desired_state=desired_state,
        deferred_since=None if deferred is None else NOW - deferred,
        cleanup_waiting_since=None if cleanup_waited is None else NOW - cleanup_waited,
    )
    return replace(seen, pipeline=changed)


def _stopped(request: TriggerRequest, seen: Situation) -> tuple[TriggerRequest, Situation]:
    return request, replace(seen, pipeline=replace(seen.pipeline, desired_state=DesiredState.STOPPED))


def _no_attempt(request: TriggerRequest, seen: Situation) -> tuple[TriggerRequest, Situation]:
    return request, replace(seen, attempt=None)


def _silent(request: TriggerRequest, seen: Situation) -> tuple[TriggerRequest, Situation]:
    return request, replace(seen, attempt=seen.attempt and replace(seen.attempt, heartbeat_at=NOW - 90 * MINUTE))


def _restoring(request: TriggerRequest, seen: Situation) -> tuple[TriggerRequest, Situation]:
    return request, replace(seen, restore=_lease(LeaseKind.RESTORE))


def _in_flight(request: TriggerRequest, seen: Situation) -> tuple[TriggerRequest, Situation]:
    return request, replace(seen, in_flight=IN_FLIGHT)


def _not_due(request: TriggerRequest, seen: Situation) -> tuple[TriggerRequest, Situation]:
    return request, replace(seen, last_triggered_at=NOW - 3 * MINUTE)


def _cleaning(request: TriggerRequest, seen: Situation) -> tuple[TriggerRequest, Situation]:
    return request, replace(seen, cleanup=_lease(LeaseKind.CLEANUP))


def _cleanup_runs(request: TriggerRequest, seen: Situation) -> tuple[TriggerRequest, Situation]:
    return replace(request, active_cleanup_runs=2), seen


def _cleanup_due(request: TriggerRequest, seen: Situation) -> tuple[TriggerRequest, Situation]:
    return request, replace(seen, pipeline=replace(seen.pipeline, cleanup_waiting_since=NOW - 10 * MINUTE))


def _started_again(request: TriggerRequest, seen: Situation) -> tuple[TriggerRequest, Situation]:
    return request, replace(seen, is_started_again=True)


# every reason with what brings it about, the one that is told first on top
TROUBLES: dict[SkipReason, tuple[Trouble, str]] = {
    SkipReason.STARTED_AGAIN: (_started_again, "somebody has started the pipeline since"),
    SkipReason.STOPPED: (_stopped, "the pipeline is meant to be stopped"),
    SkipReason.NO_ATTEMPT: (_no_attempt, "no attempt is running: none was ever started; a restore plans one"),
    SkipReason.ATTEMPT_SILENT: (_silent, "attempt 1 has been silent for 1h30m"),
    SkipReason.RESTORING: (_restoring, "the restore Dag is restoring"),
    SkipReason.IN_FLIGHT: (_in_flight, "orders/7 is COMMITTING"),
    SkipReason.NOT_DUE: (_not_due, "3m of the interval of 5m have passed"),
    SkipReason.CLEANUP_ACTIVE: (_cleaning, "the cleanup Dag is cleaning up"),
    SkipReason.CLEANUP_RUN_ACTIVE: (_cleanup_runs, "2 cleanup Dag run(s) are queued or running"),
    SkipReason.CLEANUP_DUE: (_cleanup_due, "a cleanup has waited for its turn since 11:50:00 UTC"),
}
PRECEDENCE = list(TROUBLES)


def _reason(skip: Skip | None) -> SkipReason | None:
    return None if skip is None else skip.reason


def test_when_nothing_is_in_the_way_a_checkpoint_may_start() -> None:
    assert why_skip(REQUEST, QUIET) is None


def test_every_reason_to_skip_is_tried_here() -> None:
    assert set(TROUBLES) == set(SkipReason)


@pytest.mark.parametrize("reason", PRECEDENCE)
def test_each_trouble_alone_is_told_with_its_detail(reason: SkipReason) -> None:
    trouble, detail = TROUBLES[reason]
    assert why_skip(*trouble(REQUEST, QUIET)) == Skip(reason=reason, detail=detail)


@pytest.mark.parametrize(("first", "second"), list(pairwise(PRECEDENCE)))
def test_of_two_neighbouring_troubles_the_graver_is_told(first: SkipReason, second: SkipReason) -> None:
    both = TROUBLES[first][0](*TROUBLES[second][0](REQUEST, QUIET))
    assert _reason(why_skip(*both)) is first


@quick
@given(st.sets(st.sampled_from(PRECEDENCE), min_size=1))
def test_of_many_troubles_the_gravest_is_told(reasons: set[SkipReason]) -> None:
    tried = REQUEST, QUIET
    for reason in sorted(reasons, key=PRECEDENCE.index, reverse=True):  # the gravest last: it must not be undone
        tried = TROUBLES[reason][0](*tried)
    assert _reason(why_skip(*tried)) is min(reasons, key=PRECEDENCE.index)


# the attempt


@pytest.mark.parametrize("status", [status for status in AttemptStatus if status is not AttemptStatus.RUNNING])
def test_only_a_running_attempt_can_be_checkpointed(status: AttemptStatus) -> None:
    skip = why_skip(REQUEST, replace(QUIET, attempt=replace(ATTEMPT, status=status)))
    detail = f"no attempt is running: attempt 1 is {status}; a restore plans one"
    assert skip == Skip(reason=SkipReason.NO_ATTEMPT, detail=detail)


def test_a_heartbeat_as_old_as_its_time_to_live_still_counts() -> None:
    assert why_skip(REQUEST, replace(QUIET, attempt=replace(ATTEMPT, heartbeat_at=NOW - MINUTE))) is None
    silent = replace(QUIET, attempt=replace(ATTEMPT, heartbeat_at=NOW - MINUTE - INSTANT))
    assert _reason(why_skip(REQUEST, silent)) is SkipReason.ATTEMPT_SILENT


def test_without_a_heartbeat_the_silence_is_counted_from_the_number() -> None:
    young = replace(ATTEMPT, heartbeat_at=None, numbered_at=NOW - MINUTE)
    assert why_skip(REQUEST, replace(QUIET, attempt=young)) is None
    old = replace(young, numbered_at=NOW - 2 * MINUTE)
    assert why_skip(REQUEST, replace(QUIET, attempt=old)) == Skip(
        reason=SkipReason.ATTEMPT_SILENT, detail="attempt 1 has been silent for 2m"
    )


# what is due


def test_the_interval_counts_from_the_last_trigger_and_ends_on_the_dot() -> None:
    too_soon = replace(QUIET, last_triggered_at=NOW - 5 * MINUTE + INSTANT)
    assert _reason(why_skip(REQUEST, too_soon)) is SkipReason.NOT_DUE
    assert why_skip(REQUEST, replace(QUIET, last_triggered_at=NOW - 5 * MINUTE)) is None


def test_the_minimum_pause_counts_from_the_last_end_and_ends_on_the_dot() -> None:
    too_soon = replace(QUIET, last_ended_at=NOW - 90 * timedelta(seconds=1))
    assert why_skip(REQUEST, too_soon) == Skip(
        reason=SkipReason.NOT_DUE, detail="1m30s of the minimum pause of 2m have passed"
    )
    assert why_skip(REQUEST, replace(QUIET, last_ended_at=NOW - 2 * MINUTE)) is None


def test_the_first_checkpoint_is_due_at_once() -> None:
    assert why_skip(REQUEST, replace(QUIET, last_triggered_at=None, last_ended_at=None)) is None


def test_who_does_not_ask_for_due_ones_only_need_not_wait() -> None:
    at_once = replace(QUIET, last_triggered_at=NOW, last_ended_at=NOW)
    assert why_skip(replace(REQUEST, when_due=False), at_once) is None


def test_a_trigger_that_seems_to_lie_in_the_future_has_waited_for_nothing() -> None:
    skip = why_skip(REQUEST, replace(QUIET, last_triggered_at=NOW + MINUTE))
    assert skip == Skip(reason=SkipReason.NOT_DUE, detail="0s of the interval of 5m have passed")


# cleanup and triggering put each other off, for a while


def test_the_skips_for_cleanup_are_the_ones_that_max_deferral_ends() -> None:
    tried = REQUEST, _with_pipeline(QUIET, deferred=10 * MINUTE)
    ended = {reason for reason, (trouble, _) in TROUBLES.items() if why_skip(*trouble(*tried)) is None}
    assert ended == CLEANUP_SKIPS


def test_all_of_cleanup_together_can_not_starve_a_trigger() -> None:
    tried = REQUEST, _with_pipeline(QUIET, deferred=10 * MINUTE)
    for reason in CLEANUP_SKIPS:
        tried = TROUBLES[reason][0](*tried)
    assert why_skip(*tried) is None


def test_the_last_checkpoint_of_an_attempt_goes_before_all_of_cleanup() -> None:
    """Nobody is there any more who could take it later."""
    tried = replace(REQUEST, is_last=True), QUIET
    for reason in CLEANUP_SKIPS:
        tried = TROUBLES[reason][0](*tried)
    assert why_skip(*tried) is None


def test_a_trigger_waits_for_cleanup_as_long_as_max_deferral_and_no_longer() -> None:
    almost = _with_pipeline(QUIET, deferred=10 * MINUTE - INSTANT)
    assert not goes_before_cleanup(REQUEST, almost)
    assert _reason(why_skip(*_cleaning(REQUEST, almost))) is SkipReason.CLEANUP_ACTIVE
    assert goes_before_cleanup(REQUEST, _with_pipeline(QUIET, deferred=10 * MINUTE))
    assert not goes_before_cleanup(REQUEST, QUIET)


def test_a_cleanup_waits_for_triggers_as_long_as_max_deferral_and_no_longer() -> None:
    assert why_skip(REQUEST, _with_pipeline(QUIET, cleanup_waited=10 * MINUTE - INSTANT)) is None
    due = _with_pipeline(QUIET, cleanup_waited=10 * MINUTE)
    assert _reason(why_skip(REQUEST, due)) is SkipReason.CLEANUP_DUE


def test_a_savepoint_that_a_person_asks_for_waits_for_cleanup_too() -> None:
    savepoint = replace(REQUEST, savepoint="mine", when_due=False)
    assert _reason(why_skip(*_cleaning(savepoint, QUIET))) is SkipReason.CLEANUP_ACTIVE
