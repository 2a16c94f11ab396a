"""How long checkpoints took, how large they were and how old the newest became, over the last so many."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from statistics import fmean, quantiles
from typing import Annotated

from fastapi import APIRouter, Query

from airflow_provider_ckpt.metastore import Measure
from airflow_provider_ckpt.protocol.phases import IN_FLIGHT, Phase
from airflow_provider_ckpt.protocol.records import Attempt
from airflow_provider_ckpt.ui.answers import Percentiles, Point, RestoreMark, Trends, seconds
from airflow_provider_ckpt.ui.opened import Opened
from airflow_provider_ckpt.ui.security import Readable

router = APIRouter(tags=["trends"])
_ATTEMPTS = 100  # that restores are marked of


@router.get("/pipelines/{pipeline}/trends")
def get_trends(pipeline: Readable, context: Opened, last: Annotated[int, Query(ge=1, le=2000)] = 200) -> Trends:
    """Of the last so many checkpoints each, and their percentiles."""
    found = context.store.pipelines.get(pipeline)
    measures = context.store.checkpoints.measures(pipeline, limit=last)
    points = list(_points(measures))
    good = [each for each in points if each.phase is not Phase.FAILED and each.phase not in IN_FLIGHT]
    return Trends(
        points=points,
        restores=_restores(context.store.attempts.newest(pipeline, limit=_ATTEMPTS), measures),
        duration_seconds=_percentiles(each.duration_seconds for each in good),
        new_bytes=_percentiles(each.new_bytes for each in good),
        full_bytes=_percentiles(each.full_bytes for each in good),
        age_seconds=_percentiles(each.age_seconds for each in good),
        recovery_point_seconds=seconds(found.settings.objectives.recovery_point),
    )


def _points(measures: Iterable[Measure]) -> Iterator[Point]:
    newest: datetime | None = None  # when the newest completed one was triggered
    for each in measures:
        is_good = each.ended_at is not None and each.phase is not Phase.FAILED
        yield Point.of(each, each.ended_at - newest if is_good and each.ended_at and newest else None)
        newest = each.triggered_at if is_good else newest


def _restores(newest_first: Sequence[Attempt], measures: Sequence[Measure]) -> list[RestoreMark]:
    if not measures:
        return []
    first = measures[0].triggered_at - timedelta(seconds=1)
    return [
        RestoreMark(attempt=each.number, at=each.planned_at, rung=each.rung, restored_from=each.restored_from)
        for each in reversed(newest_first)
        if each.planned_at is not None and each.planned_at >= first and each.parent is not None
    ]


def _percentiles(values: Iterable[float | None]) -> Percentiles | None:
    known = sorted(each for each in values if each is not None)
    if not known:
        return None
    cuts = quantiles(known, n=100, method="inclusive") if len(known) > 1 else known * 99
    return Percentiles(
        least=known[0],
        average=fmean(known),
        p50=cuts[49],
        p90=cuts[89],
        p95=cuts[94],
        p99=cuts[98],
        most=known[-1],
    )
