"""What is stored: what each checkpoint holds alone and with others, who pins what, and what a cleanup would do."""

from typing import Annotated

from fastapi import APIRouter, Query

from airflow_provider_ckpt.coordinator.cleanup import CleanupReport, plan_cleanup
from airflow_provider_ckpt.coordinator.holdings import hold
from airflow_provider_ckpt.coordinator.marks import Marker
from airflow_provider_ckpt.hooks.dags import LastWord, dag_id_of
from airflow_provider_ckpt.ui.answers import (
    CheckpointLine,
    CleanupPlan,
    Fate,
    HoldingLine,
    PinLine,
    StorageAnswer,
)
from airflow_provider_ckpt.ui.dags import facts_of
from airflow_provider_ckpt.ui.opened import Opened
from airflow_provider_ckpt.ui.security import Readable

router = APIRouter(tags=["storage"])
_LISTED = 50  # files of one kind


@router.get("/pipelines/{pipeline}/storage")
def get_storage(pipeline: Readable, context: Opened) -> StorageAnswer:
    """By what the manifests say: nothing is listed, no data is read."""
    store = context.store
    store.pipelines.get(pipeline)
    held, marker = hold(context, pipeline), Marker(store, pipeline)
    dag_id = dag_id_of(pipeline, LastWord.CLEANUP)
    dag = facts_of([pipeline]).get(dag_id)
    lines = [
        HoldingLine(
            checkpoint=CheckpointLine.of(each.checkpoint, marks=marker.marks(each.checkpoint)),
            full_bytes=each.full_bytes,
            unique_bytes=each.unique_bytes,
            files=each.files,
            problem=each.problem,
        )
        for each in reversed(held.holdings)
    ]
    return StorageAnswer(
        holdings=lines,
        bytes=held.bytes,
        files=held.files,
        pins=[PinLine.of(each) for each in store.pins.of(pipeline)],
        condemned=len(store.files.condemned(pipeline)),
        next_cleanup_at=None if dag is None else dag.next_run_at,
        is_cleanup_paused=None if dag is None else dag.is_paused,
    )


@router.get("/pipelines/{pipeline}/cleanup")
def plan_next_cleanup(
    pipeline: Readable, context: Opened, listed: Annotated[int, Query(ge=0, le=500)] = _LISTED
) -> CleanupPlan:
    """What a cleanup would do now. It lists the storage, which may take a while; nothing is changed."""
    context.store.pipelines.get(pipeline)
    return _plan(plan_cleanup(context, pipeline), listed)


def _plan(report: CleanupReport, listed: int) -> CleanupPlan:
    kept = [Fate(checkpoint=id_, is_kept=True, why=why) for id_, why in report.kept.items()]
    gone = [Fate(checkpoint=id_, is_kept=False, why="retention does not keep it") for id_ in report.discarded]
    quarantined = sorted(report.quarantined.items())
    return CleanupPlan(
        fates=sorted([*kept, *gone], key=lambda fate: -fate.checkpoint),
        deleted_files=len(report.deleted),
        deleted_bytes=report.deleted_bytes,
        deleted=list(report.deleted[:listed]),
        quarantined=dict(quarantined[:listed]),
        quarantined_files=len(quarantined),
        missing={id_: list(problems[:listed]) for id_, problems in report.missing.items()},
    )
