"""Whether a pipeline is as its objectives want it, in sentences that a person can act on at night."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.coordinator.diagnosis import Need, diagnose
from airflow_provider_ckpt.coordinator.health import Health, health
from airflow_provider_ckpt.protocol.duration import approximate
from airflow_provider_ckpt.protocol.objectives import Problem, ProblemKind
from airflow_provider_ckpt.protocol.records import Checkpoint, DesiredState


def judge(context: Context, pipeline: str, *, paused: Sequence[str] = ()) -> list[Problem]:
    """What is wrong now, one problem of each kind at most; a pipeline that is meant to be stopped is well.

    :param paused: the Dags of the pipeline that are paused, as far as somebody has looked.
    """
    found = health(context, pipeline)
    if found.pipeline.desired_state is DesiredState.STOPPED:
        return []
    problems = [
        *(each for each in found.problems if each.kind is not ProblemKind.DOWN),
        *_stale(found),
        *_slow(found),
        *_cleanup_blocked(found),
        *_not_running(context, found),
        *_paused(paused),
    ]
    return list({each.kind: each for each in problems}.values())


def _stale(found: Health) -> list[Problem]:
    limit = found.pipeline.settings.objectives.recovery_point
    since = found.newest.triggered_at if found.newest is not None else found.pipeline.created_at
    if limit is None or found.now - since <= limit:
        return []
    old = "there is none" if found.newest is None else f"{found.newest.ref} is {approximate(found.now - since)} old"
    return [
        Problem(
            kind=ProblemKind.STALE,
            text=f"the newest completed checkpoint may be {approximate(limit)} old, and {old}",
        )
    ]


def _slow(found: Health) -> list[Problem]:
    limit = found.pipeline.settings.objectives.max_duration
    slow = next((each for each in (found.in_flight, found.newest) if _is_slow(each, limit, found.now)), None)
    if slow is None or limit is None:
        return []
    takes = "has taken" if slow.is_in_flight else "took"
    text = f"a checkpoint may take {approximate(limit)}, and {slow.ref} {takes} {approximate(_taken(slow, found.now))}"
    return [Problem(kind=ProblemKind.SLOW, text=text)]


def _is_slow(checkpoint: Checkpoint | None, limit: timedelta | None, now: datetime) -> bool:
    return checkpoint is not None and limit is not None and _taken(checkpoint, now) > limit


def _taken(checkpoint: Checkpoint, now: datetime) -> timedelta:
    return (checkpoint.ended_at or now) - checkpoint.triggered_at


def _cleanup_blocked(found: Health) -> list[Problem]:
    since, limit = found.pipeline.cleanup_waiting_since, found.pipeline.settings.max_deferral
    if since is None or found.now - since <= limit:
        return []
    text = f"a cleanup has waited for its turn for {approximate(found.now - since)}, and storage grows"
    return [Problem(kind=ProblemKind.CLEANUP_BLOCKED, text=text)]


def _not_running(context: Context, found: Health) -> list[Problem]:
    """Down for longer than it may be; with no objective, as soon as it has failed."""
    if found.down_since is None:
        return []
    diagnosis = diagnose(context, found.pipeline.name, jitter=0.0)
    if diagnosis.need is Need.PERSON:
        return [Problem(kind=ProblemKind.GIVEN_UP, text=diagnosis.why)]
    limit = found.pipeline.settings.objectives.recovery_time
    if limit is None:
        failed = [each for each in found.problems if each.kind is ProblemKind.DOWN]
        return failed or _not_back(context, found, diagnosis.why)
    down = found.now - found.down_since
    if down <= limit:
        return []
    text = f"it may be down for {approximate(limit)}, and is for {approximate(down)}: {diagnosis.why}"
    return [Problem(kind=ProblemKind.DOWN, text=text)]


def _not_back(context: Context, found: Health, why: str) -> list[Problem]:
    """What people were told is over when it runs again, not when somebody has planned that it will."""
    if ProblemKind.DOWN not in context.store.alerts.open(found.pipeline.name):
        return []
    return [Problem(kind=ProblemKind.DOWN, text=f"it has failed, and is not back yet: {why}")]


def _paused(dag_ids: Sequence[str]) -> list[Problem]:
    if not dag_ids:
        return []
    text = f"it is meant to run, and {', '.join(dag_ids)} {'is' if len(dag_ids) == 1 else 'are'} paused in Airflow"
    return [Problem(kind=ProblemKind.PAUSED, text=text)]
