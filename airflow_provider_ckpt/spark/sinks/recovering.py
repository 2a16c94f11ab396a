"""Before a query with a sink starts: bring the target to where the attempt starts from, and nothing else.

The marker in the target is compared with the checkpoint that the attempt continues. Where it is behind, what the
checkpoint had staged is published; where it is beyond, the sink rolls back if it can, or the start is refused unless a
person accepted its duplicates by name. What was staged beyond the start, and nobody adopts, is discarded.
"""

import logging
from dataclasses import dataclass

from airflow_provider_ckpt.coordinator.commit import check_current, commit
from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.protocol.codec import Fields
from airflow_provider_ckpt.protocol.errors import Refused
from airflow_provider_ckpt.protocol.manifest import Manifest, Part
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.records import Ref, SinkStatus
from airflow_provider_ckpt.protocol.recovery import SinkMarker
from airflow_provider_ckpt.spark.sinks.seat import Seat

_log = logging.getLogger("airflow_provider_ckpt.spark")


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """What an attempt continues."""

    decided: Manifest | None  # the newest decided checkpoint on its timeline
    accepted: frozenset[str]  # sinks in which a person accepted duplicates
    batch: int | None  # the newest committed batch of the query


def recover(context: Context, seat: Seat, beginning: Beginning) -> None:
    """:raises Refused: when going on would lose or double rows."""
    ref = Ref(seat.name.pipeline, 0) if beginning.decided is None else beginning.decided.ref
    check_current(context, ref, seat.attempt)
    marker = seat.sink.recover(seat.name, seat.attempt)
    if (marker.committed or 0) > ref.id:
        _go_back(context, seat, ref, marker, beginning.accepted)
    elif (part := _part(beginning.decided, seat)) is not None and (marker.committed or 0) < ref.id:
        _catch_up(context, seat, ref, marker, part)
    seat.published = seat.sink.marker(seat.name).committed
    if not _is_pending(context, seat, ref):
        seat.discard(beginning.batch)


def _go_back(context: Context, seat: Seat, ref: Ref, marker: SinkMarker, accepted: frozenset[str]) -> None:
    name = seat.name
    if marker.can_go_back_to(ref.id):
        _log.warning("%s goes back from checkpoint %s to %d.", name, marker.committed, ref.id)
        seat.sink.roll_back(name, seat.attempt, ref.id)
        context.store.sinks.rolled_back(name.pipeline, name.sink, ref.id, seat.attempt)
    elif name.sink in accepted:
        _log.warning("%s has published %s, and rows after %s come again: accepted.", name, marker.committed, ref)
    else:
        raise Refused(
            f"{name} has published checkpoint {marker.committed}, says its target, and this attempt starts from "
            f"{ref if ref.id else 'nothing'}: what came after would be written twice. Restore {marker.committed} with "
            f"--to {marker.committed}, or accept it with --accept-duplicates {name.sink}."
        )


def _catch_up(context: Context, seat: Seat, ref: Ref, marker: SinkMarker, part: Part) -> None:
    """The chosen checkpoint is decided, and the target does not have it."""
    checkpoint = context.store.checkpoints.get(ref)
    if checkpoint.phase is Phase.COMMITTING:
        commit(context, ref, seat.attempt, {seat.name.sink: seat})
        return
    status = {each.sink: each.status for each in context.store.sinks.of(ref)}.get(seat.name.sink)
    if status is SinkStatus.ABANDONED:
        return
    before = Fields(f"what {seat.name} staged for {ref}", dict(part.staged)).optional_whole("after")
    if before == marker.committed:
        seat.commit(ref, part.staged, seat.attempt)
    elif marker.can_go_back_to(ref.id):  # it was rolled back behind this checkpoint, and can go forward again
        seat.sink.roll_back(seat.name, seat.attempt, ref.id)
    else:
        raise Refused(
            f"The target of {seat.name} is at checkpoint {marker.committed}, and {ref} continues {before}: what lies "
            "between is not there any more. Restore the checkpoint that the target is at, or bring the target back."
        )


def _part(manifest: Manifest | None, seat: Seat) -> Part | None:
    parts = () if manifest is None else manifest.sinks
    return next((part for part in parts if part.participant == seat.name.sink), None)


def _is_pending(context: Context, seat: Seat, ref: Ref) -> bool:
    """Nothing is discarded while a publication is open: it may need what looks left over."""
    if not ref.id or context.store.checkpoints.get(ref).phase is not Phase.COMMITTING:
        return False
    return any(
        each.sink == seat.name.sink and each.status is not SinkStatus.COMMITTED for each in context.store.sinks.of(ref)
    )
