"""Attempts and restores: why each ended, where the next began, how long the pipeline was away; and what happened."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query

from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.coordinator.recoveries import progress_of, recoveries
from airflow_provider_ckpt.protocol.records import LARGEST, Attempt
from airflow_provider_ckpt.ui.answers import AttemptLine, AttemptsPage, EventLine, EventsPage
from airflow_provider_ckpt.ui.opened import Opened
from airflow_provider_ckpt.ui.security import Readable

router = APIRouter(tags=["attempts"])
_BEFORE = Query(ge=1, le=LARGEST)
_LIMIT = Query(ge=1, le=100)
_PROGRESSED = 1000  # events that are looked through for when attempts made progress


@router.get("/pipelines/{pipeline}/attempts")
def list_attempts(
    pipeline: Readable,
    context: Opened,
    before: Annotated[int | None, _BEFORE] = None,
    limit: Annotated[int, _LIMIT] = 20,
) -> AttemptsPage:
    """The newest first."""
    context.store.pipelines.get(pipeline)
    found = context.store.attempts.newest(pipeline, before=before, limit=limit + 1)
    return AttemptsPage(
        attempts=lines_of(context, pipeline, found)[:limit],
        next_before=found[limit - 1].number if len(found) > limit else None,
        now=context.store.checkpoints.now(),
    )


@router.get("/pipelines/{pipeline}/events")
def list_events(
    pipeline: Readable,
    context: Opened,
    before: Annotated[int | None, Query(ge=1, le=2**63 - 1)] = None,
    limit: Annotated[int, _LIMIT] = 50,
) -> EventsPage:
    """What happened, who asked, and why; the newest first."""
    context.store.pipelines.get(pipeline)
    found = context.store.events.newest(pipeline, before=before, limit=limit + 1)
    shown = found[:limit]
    return EventsPage(
        events=[EventLine.like(each) for each in shown], next_before=shown[-1].seq if len(found) > limit else None
    )


def lines_of(context: Context, pipeline: str, newest_first: Sequence[Attempt]) -> list[AttemptLine]:
    """With when each made progress, and how long the pipeline had been away by then."""
    progressed = progress_of(context, pipeline, limit=_PROGRESSED)
    away = {each.attempt: each.took for each in recoveries(newest_first, progressed)}
    return [AttemptLine.of(each, progressed.get(each.number), away.get(each.number)) for each in newest_first]
