"""How long a pipeline was away between two attempts, and what a failure now would cost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median_low

from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.protocol.records import Attempt, AttemptStatus, Checkpoint

_RECENT = 20  # attempts


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """From the last sign of life of one attempt to the first committed batch of the next."""

    attempt: int  # the one that came back
    down_at: datetime
    back_at: datetime

    @property
    def took(self) -> timedelta:
        return max(self.back_at - self.down_at, timedelta(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What a failure now would cost."""

    replay: timedelta | None  # since the newest checkpoint, where the tip can not be used; None: there is no checkpoint
    recovery: timedelta | None  # the median of what recoveries took; None: there was none yet
    recoveries: int  # that it rests on


def forecast(context: Context, pipeline: str, newest: Checkpoint | None) -> Forecast:
    took = [each.took for each in recent_recoveries(context, pipeline)]
    now = context.store.checkpoints.now()
    return Forecast(
        replay=None if newest is None else max(now - newest.triggered_at, timedelta(0)),
        recovery=median_low(took) if took else None,
        recoveries=len(took),
    )


def recent_recoveries(context: Context, pipeline: str) -> list[Recovery]:
    attempts = context.store.attempts.newest(pipeline, limit=_RECENT)
    return recoveries(attempts, progress_of(context, pipeline))


def progress_of(context: Context, pipeline: str, *, limit: int = _RECENT) -> dict[int, datetime]:
    """When each of the newest attempts committed the first batch of its own."""
    events = context.store.events.of_kind(pipeline, "attempt.progressed", limit=limit)
    return {event.attempt: event.at for event in reversed(events) if event.attempt is not None}


def recoveries(newest_first: Sequence[Attempt], progressed: Mapping[int, datetime]) -> list[Recovery]:
    """Of attempts that follow one that died; after one that a person stopped nothing is recovered."""
    found = []
    for attempt, before in pairwise(newest_first):
        down_at = _last_sign_of_life(before)
        if attempt.number in progressed and down_at is not None:
            found.append(Recovery(attempt=attempt.number, down_at=down_at, back_at=progressed[attempt.number]))
    return found


def _last_sign_of_life(attempt: Attempt) -> datetime | None:
    match attempt.status:
        case AttemptStatus.FAILED:
            return attempt.ended_at
        case AttemptStatus.SUPERSEDED:
            return attempt.heartbeat_at
    return None
