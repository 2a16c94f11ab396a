"""`ckpt list`: the history of a pipeline's checkpoints, a page at a time."""

import argparse
from datetime import datetime

from rich.console import RenderableType

from airflow_provider_ckpt.cli import documents, humanise
from airflow_provider_ckpt.cli.output import Result, Row, line, table
from airflow_provider_ckpt.cli.session import Session
from airflow_provider_ckpt.coordinator.marks import Marker
from airflow_provider_ckpt.metastore import Page
from airflow_provider_ckpt.protocol.paths import check_name
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.records import Checkpoint

_COLUMNS = (">ID", "=PHASE", ">AGE", ">TOOK", ">ATTEMPT", ">PARTICIPANTS", ">NEW", ">FULL", "MARKS")


def history(args: argparse.Namespace, session: Session) -> Result:
    name = session.store.pipelines.get(check_name("pipeline", args.pipeline)).name
    phases = frozenset(Phase(each) for each in args.phases)
    page = session.store.checkpoints.page(name, before=args.before, limit=args.limit, phases=phases)
    marker = Marker(session.store, name)
    return Result(
        document={
            "pipeline": name,
            "checkpoints": [{**documents.checkpoint(each), "marks": marker.marks(each)} for each in page.checkpoints],
            "next_before": page.next_before,
        },
        view=_view(name, page, marker, session.store.checkpoints.now()),
    )


def _view(name: str, page: Page, marker: Marker, now: datetime) -> list[RenderableType]:
    if not page.checkpoints:
        return [line(f"Pipeline {name} has no checkpoints here. `ckpt trigger {name}` takes one.")]
    view: list[RenderableType] = [table(_COLUMNS, [_row(each, marker, now) for each in page.checkpoints])]
    if page.next_before is not None:
        view.append(line(f"There are older ones: add --before {page.next_before} for the next page.", "dim"))
    return view


def _row(checkpoint: Checkpoint, marker: Marker, now: datetime) -> Row:
    decision = checkpoint.decision
    marks = marker.marks(checkpoint)
    return (
        str(checkpoint.ref.id),
        humanise.phase(checkpoint.phase),
        humanise.ago(checkpoint.triggered_at, now),
        humanise.lasted(checkpoint.triggered_at, checkpoint.ended_at),
        str(checkpoint.attempt),
        "" if checkpoint.participants is None else str(checkpoint.participants),
        humanise.size(None if decision is None else decision.new_bytes),
        humanise.size(None if decision is None else decision.full_bytes),
        ", ".join([*marks, checkpoint.failure.reason] if checkpoint.failure else marks),
    )
