"""Capture: the consistent cut of all queries, downstream first, without a pause.

A query's cut is its newest committed batch. One that others read from is captured after its readers: its cut is the
first committed batch ≥ the newest it had planned by then, because Spark's file sink publishes a batch before it is
logged as committed. Whatever a reader had consumed, its upstream's cut contains; what lies between is in flight.
"""

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from airflow_provider_ckpt.protocol.codec import Json, JsonObject
from airflow_provider_ckpt.protocol.cut import Graph, Query, upstream_cut
from airflow_provider_ckpt.protocol.errors import CkptError
from airflow_provider_ckpt.protocol.records import Consumed, Cut, Participant, ParticipantKind
from airflow_provider_ckpt.spark.folders import AttemptFolder
from airflow_provider_ckpt.spark.holding import Held, Holder
from airflow_provider_ckpt.spark.streaming.location import Location, Portion, log_offset, source_names
from airflow_provider_ckpt.spark.streaming.logs import Vanished
from airflow_provider_ckpt.spark.streaming.sink_log import SinkLog

_log = logging.getLogger(__name__)
_TRIES = 5
_POLL = 0.05  # seconds
_QUICK = 0.01
_NEXT_COMMIT = 10.0  # seconds that a commit is waited for after files have vanished


class Unreached(CkptError):
    """A query did not come to its cut: it was called off, or the checkpoint has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One query as the agent knows it."""

    name: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    properties: JsonObject
    is_active: Callable[[], bool]
    progress: Callable[[], int | None] = lambda: None  # the newest batch that Spark itself says is committed
    pledge: Callable[[int | None], JsonObject] | None = None  # of a sink: what it publishes with a cut


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldPart:
    participant: str
    kind: ParticipantKind
    files: tuple[Held, ...]
    positions: JsonObject
    staged: JsonObject = field(default_factory=dict)  # of a sink: what a commit will publish


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """A query's cut, and its files, which are safe from now on."""

    cut: Cut
    parts: tuple[HeldPart, ...]
    seconds: float

    @property
    def participants(self) -> tuple[Participant, ...]:
        return tuple(Participant(name=part.participant, kind=part.kind) for part in self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Point:
    """Where a query is captured; `planned` is set when it has ended in the middle of a batch, which is kept then."""

    batch: int | None
    planned: int | None = None

    @property
    def published(self) -> int | None:
        return self.planned if self.planned is not None else self.batch


class Capturing:
    """Captures the queries of one attempt for one checkpoint."""

    def __init__(self, folder: AttemptFolder, graph: Graph, holder: Holder, is_wanted: Callable[[], bool]) -> None:
        self._folder = folder
        self._graph = graph
        self._holder = holder
        self._is_wanted = is_wanted
        self._seen: dict[str, list[frozenset[str]]] = {}  # by channel: what each reader had planned at its cut

    def capture(self, member: Member) -> Captured:
        """Take the cut of one query and hold its files; a file that vanishes meanwhile means a newer cut.

        :raises Unreached: when it can not be had.
        """
        self._check_seen(member)
        for _ in range(_TRIES):
            began = time.monotonic()
            point = self._point(member)
            try:
                return self._hold(member, point, began)
            except Vanished as error:
                _log.info("%s at batch %s: %s; captured anew", member.name, point.batch, error)
                self._wait_for_newer(member, point.batch)
        raise Unreached(
            f"{member.name} could not be captured: Spark's maintenance took its files away {_TRIES} times. Raise "
            "spark.sql.streaming.minBatchesToRetain or spark.sql.streaming.stateStore.maintenanceInterval."
        )

    def _check_seen(self, member: Member) -> None:
        """A checkpoint of an empty folder, while Spark writes elsewhere, would complete and hold nothing."""
        location, wanted = Location(self._folder.location(member.name)), member.progress()
        give_up = time.monotonic() + _NEXT_COMMIT
        while wanted is not None and (location.committed is None or location.committed < wanted):
            if time.monotonic() > give_up:
                raise Unreached(
                    f"{member.name} has committed batch {wanted}, says Spark, and its checkpointLocation "
                    f"{location.root} has {'none' if location.committed is None else location.committed}. Does the "
                    "program set checkpointLocation to another folder, or do the driver and Spark not share this one?"
                )
            time.sleep(_POLL)

    def _wait_for_newer(self, member: Member, batch: int | None) -> None:
        """What is gone stays gone: only right after the next commit is everything there again."""
        location = Location(self._folder.location(member.name))
        give_up = time.monotonic() + _NEXT_COMMIT
        while location.committed == batch and member.is_active() and time.monotonic() < give_up:
            time.sleep(_QUICK)

    def _point(self, member: Member) -> _Point:
        location = Location(self._folder.location(member.name))
        if not member.is_active():
            # One that ended in the middle of a batch may have published it: then that batch must be the same again.
            batch, planned = location.tip
            return _Point(batch=batch, planned=planned)
        if not self._graph.readers_of(self._graph.query(member.name)):
            return _Point(batch=location.committed)
        return _Point(batch=self._first_after(member, location, location.planned))

    def _first_after(self, member: Member, location: Location, planned: int | None) -> int | None:
        while planned is not None:
            if (batch := upstream_cut(planned, location.commits)) is not None:
                return batch
            if not self._is_wanted():
                raise Unreached(f"{member.name} has not committed batch {planned} in time")
            if not member.is_active():
                raise Unreached(f"{member.name} ended before it committed batch {planned}")
            time.sleep(_POLL)
        return None

    def _hold(self, member: Member, point: _Point, began: float) -> Captured:
        location = Location(self._folder.location(member.name))
        portions = location.needs(point.batch, planned=point.planned, names=source_names(member.properties))
        parts = [self._part(member, f"queries/{member.name}", portion) for portion in portions]
        parts += [self._channel(member, channel, point) for channel in member.writes]
        if member.pledge is not None:
            parts.append(_sink(member, member.pledge, point))
        consumed = self._note_what_was_read(member, location, portions)
        properties: dict[str, Json] = {
            **member.properties,
            "root": str(self._folder.root),
            "committed": point.batch,
        }
        cut = Cut(query=member.name, batch=point.published, consumed=consumed, properties=properties)
        return Captured(cut=cut, parts=tuple(parts), seconds=time.monotonic() - began)

    def _part(self, member: Member, prefix: str, portion: Portion) -> HeldPart:
        files = self._holder.hold(prefix, portion.pieces)
        return HeldPart(
            participant=f"{member.name}/{portion.name}", kind=portion.kind, files=files, positions=portion.positions
        )

    def _channel(self, member: Member, channel: str, point: _Point) -> HeldPart:
        """The log of a channel, and the data in flight: published, and not yet planned by every reader's cut."""
        folder = self._folder.channel(channel)
        log = SinkLog(folder)
        published = log.published(point.published)
        in_flight = sorted(path for path in published if not self._is_read_by_all(channel, path))
        data = [log.data(path) for path in in_flight]
        portion = Portion(
            name=f"channel/{channel}",
            kind=ParticipantKind.LOG,
            pieces=(*log.upto(point.published), *data),
            positions={"batch": point.published, "files_in_flight": len(data)},
        )
        return self._part(member, f"channels/{channel}", portion)

    def _is_read_by_all(self, channel: str, path: str) -> bool:
        readers = self._seen.get(channel, [])
        return bool(readers) and all(path in seen for seen in readers)

    def _note_what_was_read(
        self, member: Member, location: Location, portions: Iterable[Portion]
    ) -> tuple[Consumed, ...]:
        by_source = _planned_paths(location, portions)
        consumed = []
        for channel in member.reads:
            folder = self._folder.channel(channel)
            mine = _read_by_all(by_source, f"{folder.as_uri()}/")
            self._seen.setdefault(channel, []).append(mine)
            published = SinkLog(folder).published(SinkLog(folder).newest)
            newest = max((published[path] for paths in by_source for path in paths if path in published), default=None)
            consumed += [
                Consumed(channel=channel, writer=writer.name, batch=newest)
                for writer in self._graph.queries
                if channel in writer.writes
            ]
        return tuple(consumed)


def count_unread(folder: AttemptFolder, query: Query, properties: JsonObject) -> int:
    """How many files of its channels a query that has ended has not read."""
    location = Location(folder.location(query.name))
    batch, planned = location.tip
    by_source = _planned_paths(location, location.needs(batch, planned=planned, names=source_names(properties)))
    found = 0
    for channel in query.reads:
        log = SinkLog(folder.channel(channel))
        published = log.published(log.newest)
        found += len(published.keys() - _read_by_all(by_source, f"{folder.channel(channel).as_uri()}/"))
    return found


def _sink(member: Member, pledge: Callable[[int | None], JsonObject], point: _Point) -> HeldPart:
    """Only committed batches: one that ended in the middle runs again, and is staged again."""
    return HeldPart(
        participant=f"{member.name}/sink",
        kind=ParticipantKind.SINK,
        files=(),
        positions={"batch": point.batch},
        staged=pledge(point.batch),
    )


def _planned_paths(location: Location, portions: Iterable[Portion]) -> list[frozenset[str]]:
    """What each file source of a query has planned, and nothing for a source that has read nothing yet."""
    found = []
    for portion in portions:
        offset = portion.positions.get("offset")
        upto = log_offset(offset)
        if portion.kind is ParticipantKind.SOURCE and (offset is None or upto is not None):
            name = portion.name.removeprefix("source/")
            found.append(frozenset() if upto is None else location.seen(name, upto))
    return found


def _read_by_all(by_source: Iterable[frozenset[str]], channel: str) -> frozenset[str]:
    """The files of a channel that every source which reads it has planned: a self-join reads it by two.

    A source that has read nothing yet may read this channel: while there is one, every file is kept.
    """
    sources = [paths for paths in by_source if not paths or any(path.startswith(channel) for path in paths)]
    own = [frozenset(path for path in paths if path.startswith(channel)) for paths in sources]
    return frozenset.intersection(*own) if own else frozenset()
