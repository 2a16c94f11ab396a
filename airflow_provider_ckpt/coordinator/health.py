"""Whether a pipeline's checkpoints are well: what a person, a sensor or an alert asks first."""

from dataclasses import dataclass
from datetime import timedelta

from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.protocol.duration import approximate
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.records import Attempt, AttemptStatus, Checkpoint, DesiredState, Pipeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The facts, and what is wrong with them in words."""

    pipeline: Pipeline
    attempt: Attempt | None
    in_flight: Checkpoint | None
    newest: Checkpoint | None  # completed
    age: timedelta | None  # of the newest completed one
    failures: int  # counted ones, in a row
    problems: tuple[str, ...]

    @property
    def is_well(self) -> bool:
        return not self.problems


def health(context: Context, name: str) -> Health:
    store = context.store
    pipeline = store.pipelines.get(name)
    number = pipeline.current_attempt
    attempt = None if number is None else store.attempts.get(name, number)
    completed = store.checkpoints.page(name, limit=1, phases=frozenset({Phase.COMPLETED})).checkpoints
    newest = completed[0] if completed else None
    now = store.checkpoints.now()
    failures = store.checkpoints.failures_in_a_row(name)
    silence = now - attempt.heartbeat_at if attempt is not None and attempt.heartbeat_at is not None else None
    return Health(
        pipeline=pipeline,
        attempt=attempt,
        in_flight=store.checkpoints.in_flight(name),
        newest=newest,
        age=None if newest is None else now - newest.triggered_at,
        failures=failures,
        problems=tuple(_problems(pipeline, attempt, failures, silence)),
    )


def _problems(pipeline: Pipeline, attempt: Attempt | None, failures: int, silence: timedelta | None) -> list[str]:
    problems = []
    tolerable = pipeline.settings.tolerable_failures
    if failures > 0 and failures >= tolerable:
        problems.append(f"{failures} checkpoints failed in a row (tolerable: fewer than {max(tolerable, 1)})")
    if pipeline.desired_state is DesiredState.RUNNING and attempt is not None:
        if attempt.status is AttemptStatus.FAILED:
            problems.append(f"attempt {attempt.number} has failed: {attempt.failure or 'no reason was given'}")
        if attempt.status is AttemptStatus.RUNNING and silence is not None and silence > pipeline.settings.attempt_ttl:
            problems.append(f"attempt {attempt.number} has been silent for {approximate(silence)}")
    return problems
