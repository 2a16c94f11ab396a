"""Whether a pipeline's checkpoints are well: what a person, a sensor or an alert asks first."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.metastore import Inventory
from airflow_provider_ckpt.protocol.duration import approximate
from airflow_provider_ckpt.protocol.records import Attempt, AttemptStatus, Checkpoint, DesiredState, Pipeline
from airflow_provider_ckpt.protocol.timeline import current_timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The facts, and what is wrong with them in words."""

    pipeline: Pipeline
    attempt: Attempt | None
    in_flight: Checkpoint | None
    newest: Checkpoint | None  # completed, intact as far as anybody knows, on the current timeline
    age: timedelta | None  # of that one
    failures: int  # counted ones, in a row
    problems: tuple[str, ...]

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
        problems=(*_problems(pipeline, attempt, failures, silence), *_stuck(flying, now, pipeline)),
    )


def _newest(inventory: Inventory) -> Checkpoint | None:
    timeline = current_timeline(inventory.attempts)
    usable = [e for e in inventory.retained if e.is_restorable and timeline.holds(e.attempt, e.ref.id)]
    return usable[-1] if usable else None


def _problems(pipeline: Pipeline, attempt: Attempt | None, failures: int, silence: timedelta | None) -> list[str]:
    problems = []
    tolerable = pipeline.settings.tolerable_failures
    if failures > 0 and failures >= tolerable:
        problems.append(f"{failures} checkpoints failed in a row (tolerable: fewer than {max(tolerable, 1)})")
    if pipeline.desired_state is DesiredState.RUNNING and attempt is not None:
        if attempt.status is AttemptStatus.FAILED:
            problems.append(f"attempt {attempt.number} has failed: {attempt.failure or 'no reason was given'}")
        if attempt.status is AttemptStatus.PREPARING:
            problems.append(f"attempt {attempt.number} was never planned: a restore has not finished")
        if attempt.status is AttemptStatus.RUNNING and silence is not None and silence > pipeline.settings.attempt_ttl:
            problems.append(f"attempt {attempt.number} has been silent for {approximate(silence)}")
    return problems


def _stuck(flying: Checkpoint | None, now: datetime, pipeline: Pipeline) -> list[str]:
    if flying is None or flying.decided_at is None or now - flying.decided_at <= pipeline.settings.timeout:
        return []
    return [f"{flying.ref} has been {flying.phase} for {approximate(now - flying.decided_at)}: a sink does not commit"]
