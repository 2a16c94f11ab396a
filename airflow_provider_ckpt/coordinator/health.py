"""Whether a pipeline's checkpoints are well: what a person, a sensor or an alert asks first."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.metastore import Inventory
from airflow_provider_ckpt.protocol.duration import approximate, format_duration
from airflow_provider_ckpt.protocol.objectives import Problem, ProblemKind
from airflow_provider_ckpt.protocol.records import Attempt, AttemptStatus, Checkpoint, DesiredState, LeaseKind, Pipeline
from airflow_provider_ckpt.protocol.timeline import current_timeline

_ENDED_WELL = frozenset({AttemptStatus.FINISHED, AttemptStatus.STOPPED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The facts, and what is wrong with them in words."""

    pipeline: Pipeline
    attempt: Attempt | None
    in_flight: Checkpoint | None
    newest: Checkpoint | None  # completed, intact as far as anybody knows, on the current timeline
    age: timedelta | None  # of that one
    failures: int  # counted ones, in a row
    down_since: datetime | None  # it should run, and nobody has heard of it since then
    now: datetime
    problems: tuple[Problem, ...]

    @property
    def is_well(self) -> bool:
        return not self.problems


def health(context: Context, name: str) -> Health:
    store = context.store
    inventory = store.views.inventory(name)
    pipeline, now = inventory.pipeline, inventory.now
    attempt = next((each for each in inventory.attempts if each.number == pipeline.current_attempt), None)
    newest = _newest(inventory)
    failures = store.checkpoints.failures_in_a_row(name)
    flying = store.checkpoints.in_flight(name)
    silence = now - attempt.heartbeat_at if attempt is not None and attempt.heartbeat_at is not None else None
    return Health(
        pipeline=pipeline,
        attempt=attempt,
        in_flight=flying,
        newest=newest,
        age=None if newest is None else now - newest.triggered_at,
        failures=failures,
        down_since=_down_since(pipeline, inventory.attempts, now),
        now=now,
        problems=(
            *_problems(pipeline, attempt, failures, silence),
            *_unplanned(pipeline, attempt, is_restoring=_is_restoring(context, name)),
            *_unclaimed(pipeline, attempt, now),
            *_stuck(flying, now, pipeline),
        ),
    )


def _newest(inventory: Inventory) -> Checkpoint | None:
    timeline = current_timeline(inventory.attempts)
    usable = [e for e in inventory.retained if e.is_restorable and timeline.holds(e.attempt, e.ref.id)]
    return usable[-1] if usable else None


def _down_since(pipeline: Pipeline, attempts: Sequence[Attempt], now: datetime) -> datetime | None:
    if pipeline.desired_state is DesiredState.STOPPED:
        return None
    current = next((each for each in attempts if each.number == pipeline.current_attempt), None)
    if current is not None and (_is_beating(current, pipeline, now) or current.status in _ENDED_WELL):
        return None
    return max((each.heartbeat_at for each in attempts if each.heartbeat_at is not None), default=pipeline.created_at)


def _is_beating(attempt: Attempt, pipeline: Pipeline, now: datetime) -> bool:
    heard = attempt.heartbeat_at
    is_fresh = heard is not None and now - heard <= pipeline.settings.attempt_ttl
    return attempt.status is AttemptStatus.RUNNING and is_fresh


def _problems(pipeline: Pipeline, attempt: Attempt | None, failures: int, silence: timedelta | None) -> list[Problem]:
    problems = []
    tolerable = pipeline.settings.tolerable_failures
    if failures > 0 and failures >= tolerable:
        text = f"{failures} checkpoints failed in a row (tolerable: fewer than {max(tolerable, 1)})"
        problems.append(Problem(kind=ProblemKind.FAILING, text=text))
    if pipeline.desired_state is DesiredState.RUNNING and attempt is not None:
        if attempt.status is AttemptStatus.FAILED:
            text = f"attempt {attempt.number} has failed: {attempt.failure or 'no reason was given'}"
            problems.append(Problem(kind=ProblemKind.DOWN, text=text))
        if attempt.status is AttemptStatus.RUNNING and silence is not None and silence > pipeline.settings.attempt_ttl:
            text = f"attempt {attempt.number} has been silent for {approximate(silence)}"
            problems.append(Problem(kind=ProblemKind.SILENT, text=text))
    return problems


def _is_restoring(context: Context, name: str) -> bool:
    return any(each.kind is LeaseKind.RESTORE for each in context.store.leases.held(name))


def _unplanned(pipeline: Pipeline, attempt: Attempt | None, *, is_restoring: bool) -> list[Problem]:
    """A restore that has died; one that works takes its time."""
    is_meant_to_run = pipeline.desired_state is DesiredState.RUNNING and not is_restoring
    if attempt is None or attempt.status is not AttemptStatus.PREPARING or not is_meant_to_run:
        return []
    text = f"attempt {attempt.number} was never planned: a restore has not finished"
    return [Problem(kind=ProblemKind.DOWN, text=text)]


def _unclaimed(pipeline: Pipeline, attempt: Attempt | None, now: datetime) -> list[Problem]:
    """A driver that was started and never came up; one that waits in a cluster's queue takes its time."""
    if attempt is None or attempt.status is not AttemptStatus.PLANNED or attempt.submitted_at is None:
        return []
    limit = pipeline.settings.claim_timeout
    if pipeline.desired_state is DesiredState.STOPPED or now - attempt.submitted_at <= limit:
        return []
    name = f" as {attempt.application_id}" if attempt.application_id else ""
    text = f"attempt {attempt.number} was submitted{name} and no driver has claimed it within {format_duration(limit)}"
    return [Problem(kind=ProblemKind.DOWN, text=text)]


def _stuck(flying: Checkpoint | None, now: datetime, pipeline: Pipeline) -> list[Problem]:
    if flying is None or flying.decided_at is None or now - flying.decided_at <= pipeline.settings.timeout:
        return []
    text = f"{flying.ref} has been {flying.phase} for {approximate(now - flying.decided_at)}: a sink does not commit"
    return [Problem(kind=ProblemKind.COMMIT_STUCK, text=text)]
