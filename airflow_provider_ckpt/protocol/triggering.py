"""Whether a checkpoint may start now: one pure decision over what the store knows under the pipeline's lock."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from airflow_provider_ckpt.protocol.duration import format_duration
from airflow_provider_ckpt.protocol.reasons import SkipReason
from airflow_provider_ckpt.protocol.records import (
    Attempt,
    AttemptStatus,
    Checkpoint,
    DesiredState,
    Lease,
    Pipeline,
    TriggerRequest,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What a trigger finds: the pipeline, its current attempt, and who else is busy with it."""

    pipeline: Pipeline
    attempt: Attempt | None
    in_flight: Checkpoint | None
    cleanup: Lease | None  # unexpired leases only
    restore: Lease | None
    last_triggered_at: datetime | None
    last_ended_at: datetime | None
    now: datetime
    is_started_again: bool = False  # somebody has started the pipeline since the event that the request names


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    reason: SkipReason
    detail: str


def why_skip(request: TriggerRequest, seen: Situation) -> Skip | None:
    """Why no checkpoint may start now; None when it may."""
    cannot = _started_again(seen) or _not_running(request, seen)
    return cannot or _busy(seen) or _not_due(request, seen) or _cleanup_first(request, seen)


def goes_before_cleanup(request: TriggerRequest, seen: Situation) -> bool:
    """Whether no cleanup puts this checkpoint off: the last of an attempt, or one that has waited for long enough."""
    since = seen.pipeline.deferred_since
    has_waited = since is not None and seen.now - since >= seen.pipeline.settings.max_deferral
    return request.is_last or has_waited


def _started_again(seen: Situation) -> Skip | None:
    if not seen.is_started_again:
        return None
    return Skip(reason=SkipReason.STARTED_AGAIN, detail="somebody has started the pipeline since")


def _not_running(request: TriggerRequest, seen: Situation) -> Skip | None:
    if seen.pipeline.desired_state is DesiredState.STOPPED and not request.is_last:
        return Skip(reason=SkipReason.STOPPED, detail="the pipeline is meant to be stopped")
    if seen.attempt is None or seen.attempt.status is not AttemptStatus.RUNNING:
        status = (
            "none was ever started"
            if seen.attempt is None
            else f"attempt {seen.attempt.number} is {seen.attempt.status}"
        )
        return Skip(reason=SkipReason.NO_ATTEMPT, detail=f"no attempt is running: {status}; a restore plans one")
    if request.attempt is not None and seen.attempt.number > request.attempt:
        detail = f"attempt {request.attempt} is meant, and attempt {seen.attempt.number} runs"
        return Skip(reason=SkipReason.NO_ATTEMPT, detail=detail)
    silence = seen.now - (seen.attempt.heartbeat_at or seen.attempt.numbered_at)
    if silence > seen.pipeline.settings.attempt_ttl:
        detail = f"attempt {seen.attempt.number} has been silent for {format_duration(_rounded(silence))}"
        return Skip(reason=SkipReason.ATTEMPT_SILENT, detail=detail)
    return None


def _busy(seen: Situation) -> Skip | None:
    if seen.restore is not None:
        return Skip(reason=SkipReason.RESTORING, detail=f"{seen.restore.owner} is restoring")
    if seen.in_flight is not None:
        return Skip(reason=SkipReason.IN_FLIGHT, detail=f"{seen.in_flight.ref} is {seen.in_flight.phase}")
    return None


def _not_due(request: TriggerRequest, seen: Situation) -> Skip | None:
    settings = seen.pipeline.settings
    waits = (
        ("interval", seen.last_triggered_at, settings.interval),
        ("minimum pause", seen.last_ended_at, settings.min_pause),
    )
    for name, since, needed in waits:
        if request.when_due and since is not None and seen.now - since < needed:
            passed = format_duration(_rounded(seen.now - since))
            return Skip(
                reason=SkipReason.NOT_DUE, detail=f"{passed} of the {name} of {format_duration(needed)} have passed"
            )
    return None


def _cleanup_first(request: TriggerRequest, seen: Situation) -> Skip | None:
    if goes_before_cleanup(request, seen):
        return None
    if seen.cleanup is not None:
        return Skip(reason=SkipReason.CLEANUP_ACTIVE, detail=f"{seen.cleanup.owner} is cleaning up")
    if request.active_cleanup_runs:
        detail = f"{request.active_cleanup_runs} cleanup Dag run(s) are queued or running"
        return Skip(reason=SkipReason.CLEANUP_RUN_ACTIVE, detail=detail)
    waiting = seen.pipeline.cleanup_waiting_since
    if waiting is not None and seen.now - waiting >= seen.pipeline.settings.max_deferral:
        return Skip(
            reason=SkipReason.CLEANUP_DUE, detail=f"a cleanup has waited for its turn since {waiting:%H:%M:%S} UTC"
        )
    return None


def _rounded(duration: timedelta) -> timedelta:
    return timedelta(milliseconds=max(0, round(duration.total_seconds() * 1000)))
