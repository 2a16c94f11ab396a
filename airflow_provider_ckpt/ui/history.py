"""Every checkpoint, a page at a time."""

from typing import Annotated

from fastapi import APIRouter, Query

from airflow_provider_ckpt.coordinator.marks import Marker
from airflow_provider_ckpt.metastore import Metastore
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.records import LARGEST, Checkpoint, Kind
from airflow_provider_ckpt.ui.answers import CheckpointLine, HistoryPage
from airflow_provider_ckpt.ui.opened import Opened
from airflow_provider_ckpt.ui.security import Readable

router = APIRouter(tags=["checkpoints"])


@router.get("/pipelines/{pipeline}/checkpoints")
def list_checkpoints(
    pipeline: Readable,
    context: Opened,
    before: Annotated[int | None, Query(ge=1, le=LARGEST)] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 25,
    phase: Annotated[list[Phase] | None, Query(max_length=len(Phase))] = None,
    kind: Kind | None = None,
    attempt: Annotated[int | None, Query(ge=1, le=LARGEST)] = None,
) -> HistoryPage:
    """The newest first; `phase` may be given several times."""
    store = context.store
    store.pipelines.get(pipeline)
    page = store.checkpoints.page(
        pipeline, before=before, limit=limit, phases=frozenset(phase or ()), kind=kind, attempt=attempt
    )
    marker = Marker(store, pipeline)
    lines = [line_of(store, each, marks=marker.marks(each)) for each in page.checkpoints]
    return HistoryPage(checkpoints=lines, next_before=page.next_before)


def line_of(store: Metastore, checkpoint: Checkpoint, *, marks: list[str]) -> CheckpointLine:
    """Of one that is in flight only its acknowledgements say how far it is."""
    acked = store.acks.progress(checkpoint.ref).acked if checkpoint.is_in_flight else None
    return CheckpointLine.of(checkpoint, marks=marks, acked=acked)
