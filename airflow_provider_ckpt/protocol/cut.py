"""The consistent cut over a graph of queries that are joined by durable channels.

Queries are captured in reverse topological order, downstream first. One rule makes the cut consistent: after its
readers' cuts are taken, read the upstream's newest *planned* batch P; its cut is the first *committed* batch ≥ P.
Whatever a reader had consumed, its upstream had produced by then. What lies between is the channel's in-flight data:
a Chandy–Lamport cut without aligning anything.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

from airflow_provider_ckpt.protocol.codec import Fields, Json, JsonObject
from airflow_provider_ckpt.protocol.errors import Misused
from airflow_provider_ckpt.protocol.records import Cut


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One query of a pipeline and the durable channels that it reads and writes."""

    name: str
    reads: frozenset[str] = field(default_factory=frozenset)
    writes: frozenset[str] = field(default_factory=frozenset)

    def to_json(self) -> JsonObject:
        return {"name": self.name, "reads": sorted(self.reads), "writes": sorted(self.writes)}


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlight:
    """What a channel holds at the cut: written by batches `after` < n ≤ `upto` of the writer, not yet read."""

    channel: str
    writer: str
    reader: str
    after: int
    upto: int


@dataclass(frozen=True, slots=True)
class Graph:
    """The queries of one attempt. Cycles are refused: no order of capture would be consistent."""

    queries: tuple[Query, ...]

    def __post_init__(self) -> None:
        names = [query.name for query in self.queries]
        if len(set(names)) != len(names):
            raise Misused(f"A pipeline's queries need distinct names; got {', '.join(sorted(names))}.")
        self.capture_order()

    def capture_order(self) -> tuple[str, ...]:
        """All queries, downstream first."""
        sorter = TopologicalSorter({query.name: sorted(self.readers_of(query)) for query in self.queries})
        try:
            return tuple(sorter.static_order())
        except CycleError as error:
            ring = " → ".join(reversed(error.args[1]))
            raise Misused(
                f"The queries form a cycle ({ring}): no consistent cut exists. "
                "Break the cycle, or run the queries as separate pipelines."
            ) from error

    def readers_of(self, query: Query) -> frozenset[str]:
        return frozenset(other.name for other in self.queries if other.reads & query.writes)

    def missing_readers(self, name: str, captured: Iterable[str]) -> frozenset[str]:
        """The readers whose cuts must be taken before `name` may be captured."""
        return self.readers_of(self.query(name)) - frozenset(captured)

    def query(self, name: str) -> Query:
        for query in self.queries:
            if query.name == name:
                return query
        known = ", ".join(query.name for query in self.queries) or "none"
        raise Misused(f"The running attempt has no query {name!r}; it has: {known}.")

    def to_json(self) -> Json:
        return [query.to_json() for query in self.queries]

    @property
    def names(self) -> frozenset[str]:
        return frozenset(query.name for query in self.queries)


def graph_from_json(document: Json) -> Graph:
    return Graph(tuple(map(_query, Fields("graph", {"queries": document}).items("queries"))))


def _query(fields: Fields) -> Query:
    query = Query(
        name=fields.text("name"),
        reads=frozenset(fields.texts("reads")),
        writes=frozenset(fields.texts("writes")),
    )
    fields.done()
    return query


def upstream_cut(planned: int | None, commits: Sequence[int]) -> int | None:
    """The first committed batch ≥ the newest planned one; None while it is not there (wait, or nothing ran yet)."""
    if planned is None:
        return None
    return min((batch for batch in commits if batch >= planned), default=None)


def in_flight(cuts: Mapping[str, Cut]) -> tuple[InFlight, ...]:
    """The ranges that channels hold at this cut, empty ranges left out."""
    ranges = (
        InFlight(channel=c.channel, writer=c.writer, reader=reader, after=c.upto, upto=_batch(cuts, c.writer))
        for reader, cut in sorted(cuts.items())
        for c in cut.consumed
    )
    return tuple(each for each in ranges if each.upto > each.after)


def find_inconsistency(cuts: Mapping[str, Cut]) -> str | None:
    """A sentence about a reader that had consumed what its upstream's cut does not contain; None when consistent."""
    for reader, cut in sorted(cuts.items()):
        for consumed in cut.consumed:
            if consumed.upto > _batch(cuts, consumed.writer):
                return (
                    f"{reader} had consumed batch {consumed.batch} of {consumed.writer} through {consumed.channel}, "
                    f"but the cut of {consumed.writer} is {_batch(cuts, consumed.writer)}"
                )
    return None


def _batch(cuts: Mapping[str, Cut], query: str) -> int:
    batch = cuts[query].batch if query in cuts else None
    return -1 if batch is None else batch
