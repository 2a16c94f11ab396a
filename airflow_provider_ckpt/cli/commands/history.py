"""`ckpt list`: the history of a pipeline's checkpoints, a page at a time."""

import argparse
from datetime import datetime

from rich.console import RenderableType

from airflow_provider_ckpt.cli import documents, humanise
from airflow_provider_ckpt.cli.output import Result, Row, line, table
from airflow_provider_ckpt.cli.session import Session
from airflow_provider_ckpt.metastore import Metastore, Page
from airflow_provider_ckpt.protocol.paths import check_name
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.records import Checkpoint
from airflow_provider_ckpt.protocol.timeline import Timeline, current_timeline

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


class Marker:
    """Says what is special about a checkpoint beside its phase."""

    def __init__(self, store: Metastore, pipeline: str) -> None:
        self._timeline: Timeline = current_timeline(store.attempts.of(pipeline))
        self._pinned = {pin.ref.id for pin in store.pins.of(pipeline)}

    def marks(self, checkpoint: Checkpoint) -> list[str]:
        marks = [f"savepoint {checkpoint.name}"] if checkpoint.name else []
        marks += ["pinned"] if checkpoint.ref.id in self._pinned else []
        marks += [checkpoint.verdict] if checkpoint.verdict else []
        marks += ["abandoned"] if self._is_abandoned(checkpoint) else []
        return marks

    def _is_abandoned(self, checkpoint: Checkpoint) -> bool:
        is_held = self._timeline.holds(checkpoint.attempt, checkpoint.ref.id)
        return checkpoint.phase is Phase.COMPLETED and not is_held


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
