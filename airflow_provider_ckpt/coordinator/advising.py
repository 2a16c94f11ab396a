"""What interval a pipeline's own history advises."""

from datetime import datetime, timedelta

from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.coordinator.declaring import declare
from airflow_provider_ckpt.protocol.duration import format_duration
from airflow_provider_ckpt.protocol.interval import Advice, advise
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.records import Attempt, AttemptStatus

_RECENT = 20  # checkpoints


def advised(context: Context, pipeline: str, *, bounds: tuple[timedelta, timedelta]) -> Advice | None:
    """From the recent checkpoints and the attempts so far; None until there is something to go by."""
    page = context.store.checkpoints.page(pipeline, limit=_RECENT, phases=frozenset({Phase.COMPLETED}))
    costs = [each.ended_at - each.triggered_at for each in page.checkpoints if each.ended_at is not None]
    now = context.store.checkpoints.now()
    started = [each for each in context.store.attempts.of(pipeline) if each.claimed_at is not None]
    if not costs or not started:
        return None
    failures = sum(each.status in (AttemptStatus.FAILED, AttemptStatus.SUPERSEDED) for each in started)
    return advise(costs, [_uptime(each, now) for each in started], bounds=bounds, failures=failures)


def adapt(context: Context, pipeline: str, *, bounds: tuple[timedelta, timedelta]) -> Advice | None:
    """Set the pipeline's interval to what is advised; None when nothing is."""
    advice = advised(context, pipeline, bounds=bounds)
    if advice is not None:
        interval = timedelta(seconds=round(advice.interval.total_seconds()))
        changes = {"interval": format_duration(interval)}
        declare(context.store, pipeline, changes, actor=context.actor)
    return advice


def _uptime(attempt: Attempt, now: datetime) -> timedelta:
    return max((attempt.ended_at or now) - (attempt.claimed_at or now), timedelta(milliseconds=1))
