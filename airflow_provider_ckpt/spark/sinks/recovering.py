"""Before a query with a sink starts: bring the target to where the attempt starts from, and nothing else.

The marker in the target is compared with the checkpoint that the attempt continues. Where it is behind, what the
checkpoint had staged is published, if the target is where that checkpoint expects it; where it is beyond, the sink
rolls back if it can, or the start is refused unless a person accepted its duplicates by name. What was staged beyond
the start, and nobody adopts, is discarded.
"""

import logging
from dataclasses import dataclass

from airflow_provider_ckpt.coordinator.commit import check_current, commit
from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.protocol.errors import Fenced, Refused
from airflow_provider_ckpt.protocol.manifest import Manifest, Part
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.pledge import expected_marker, has_nothing, stands_at
from airflow_provider_ckpt.protocol.records import SINK_DONE, Ref, SinkStatus
from airflow_provider_ckpt.protocol.recovery import SinkMarker
from airflow_provider_ckpt.spark.sinks.base import stands_elsewhere
from airflow_provider_ckpt.spark.sinks.seat import Seat

_log = logging.getLogger("airflow_provider_ckpt.spark")


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """What an attempt continues."""

    decided: Manifest | None  # the newest decided checkpoint on its timeline
    accepted: frozenset[str]  # sinks in which a person accepted duplicates
    batch: int | None  # the newest committed batch of the query


@dataclass(frozen=True, slots=True, kw_only=True)
class _Start:
    """The checkpoint that an attempt starts from, as one of its sinks knows it."""

    ref: Ref  # 0: from nothing
    part: Part | None  # None: the sink joined later
    status: SinkStatus | None

    @property
    def places(self) -> tuple[int, ...]:
        """The markers with which the target has what the checkpoint has; the first one that it can go to is taken."""
        if self.part is None:
            return (0,)
        return tuple(dict.fromkeys((self.ref.id, stands_at(self.ref.id, self.part.staged, self.status))))

    @property
    def is_open(self) -> bool:
        """Whether the sink may have something to commit."""
        return self.part is not None and self.status is not SinkStatus.ABANDONED


def recover(context: Context, seat: Seat, beginning: Beginning) -> None:
    """:raises Refused: when going on would lose or double rows."""
    start = _start(context, seat, beginning.decided)
    check_current(context, start.ref, seat.attempt)
    marker = _take_over(context, seat)
    if (marker.committed or 0) > start.ref.id:
        _go_back(context, seat, start, marker, beginning.accepted)
    elif start.is_open and (marker.committed or 0) not in start.places:
        _catch_up(context, seat, start, marker)
    seat.published = seat.sink.marker(seat.name).committed
    if not _is_pending(context, seat, start.ref):
        seat.discard(beginning.batch)


def _start(context: Context, seat: Seat, decided: Manifest | None) -> _Start:
    if decided is None:
        return _Start(ref=Ref(seat.name.pipeline, 0), part=None, status=None)
    part = next((part for part in decided.sinks if part.participant == seat.name.sink), None)
    statuses = {each.sink: each.status for each in context.store.sinks.of(decided.ref)}
    return _Start(ref=decided.ref, part=part, status=statuses.get(seat.name.sink))


def _take_over(context: Context, seat: Seat) -> SinkMarker:
    """:raises Refused: when the target has heard of attempts or checkpoints that the metastore has not given out."""
    try:
        marker = seat.sink.recover(seat.name, seat.attempt)
    except Fenced as error:
        check_current(context, Ref(seat.name.pipeline, 0), seat.attempt)
        raise _metastore_is_older(seat, str(error)) from error
    if (marker.committed or 0) >= context.store.pipelines.get(seat.name.pipeline).next_checkpoint:
        raise _metastore_is_older(seat, f"The target of {seat.name} is at checkpoint {marker.committed}.")
    return marker


def _metastore_is_older(seat: Seat, what: str) -> Refused:
    return Refused(
        f"{what} The metastore has not come that far: it is older than its targets, as after a restored backup. Run "
        f"`ckpt rebuild {seat.name.pipeline}`, which goes on after what storage and targets know, and start again."
    )


def _go_back(context: Context, seat: Seat, start: _Start, marker: SinkMarker, accepted: frozenset[str]) -> None:
    name, ref = seat.name, start.ref
    if _go_to(context, seat, start):
        return
    if name.sink in accepted:
        _log.warning("%s has published %s, and rows after %s come again: accepted.", name, marker.committed, ref)
        return
    raise Refused(
        f"{name} has published checkpoint {marker.committed}, says its target, and this attempt starts from "
        f"{ref if ref.id else 'nothing'}: what came after would be written twice. Restore {marker.committed} with "
        f"--to {marker.committed}, or accept it with --accept-duplicates {name.sink}."
    )


def _catch_up(context: Context, seat: Seat, start: _Start, marker: SinkMarker) -> None:
    """The chosen checkpoint is decided, and the target does not have it; or it was rolled back behind it."""
    staged = {} if start.part is None else start.part.staged
    is_next = not has_nothing(staged) and (marker.committed or 0) == (expected_marker(staged) or 0)
    if not is_next and not _go_to(context, seat, start):
        raise _elsewhere(context, seat, start, marker, expected_marker(staged))
    if context.store.checkpoints.get(start.ref).phase is Phase.COMMITTING:
        commit(context, start.ref, seat.attempt, {seat.name.sink: seat})
    elif is_next:
        seat.commit(start.ref, staged, seat.attempt)


def _go_to(context: Context, seat: Seat, start: _Start) -> bool:
    """Take the target back, or forward again, to where it was with a checkpoint; False where it can not go."""
    history = seat.sink.history(seat.name)
    to = next((place for place in start.places if place in history), None)
    if to is None:
        return False
    _log.warning("%s goes to what it had committed with checkpoint %d.", seat.name, to)
    seat.sink.roll_back(seat.name, seat.attempt, to)
    context.store.sinks.rolled_back(seat.name.pipeline, seat.name.sink, to, seat.attempt)
    return True


def _elsewhere(context: Context, seat: Seat, start: _Start, marker: SinkMarker, expected: int | None) -> Refused:
    if context.store.checkpoints.get(start.ref).phase is Phase.COMMITTING:
        return stands_elsewhere(start.ref, seat.name, marker.committed, expected)
    if marker.committed is None:
        return Refused(
            f"The target of {seat.name} has nothing of it, and {start.ref} is committed there: it was emptied, or is "
            f"another one. Bring it back as it was with {start.ref}, or with the checkpoint that you restore."
        )
    return Refused(
        f"The target of {seat.name} is at checkpoint {marker.committed}, and {start.ref} continues {expected}: what "
        f"lies between is not there any more. Restore what the target is at with `ckpt restore {start.ref.pipeline} "
        f"--to {marker.committed}`, or bring the target back."
    )


def _is_pending(context: Context, seat: Seat, ref: Ref) -> bool:
    """Nothing is discarded while a publication is open: it may need what looks left over."""
    if not ref.id or context.store.checkpoints.get(ref).phase is not Phase.COMMITTING:
        return False
    return any(each.sink == seat.name.sink and each.status not in SINK_DONE for each in context.store.sinks.of(ref))
