"""What a program asks for when it starts a query: its channels, and its one sink."""

from collections.abc import Iterable
from dataclasses import dataclass

from airflow_provider_ckpt.protocol.cut import Query
from airflow_provider_ckpt.protocol.errors import Misused
from airflow_provider_ckpt.protocol.paths import check_name
from airflow_provider_ckpt.spark.sinks.base import Sink

Names = str | Iterable[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One query as it is asked for.

    :raises Misused: when it has more than one sink.
    """

    query: Query
    sink: Sink | None = None
    is_rewindable: bool | None = None  # what the program says of a sink that is not ours

    def __post_init__(self) -> None:
        if len(self.query.writes) > 1:
            raise Misused(f"Query {self.name} has one sink: it writes one channel.")
        if self.sink is not None and (self.query.writes or self.is_rewindable is not None):
            raise Misused(f"Query {self.name} has one sink: with sink=… it has no writes or is_rewindable.")

    @property
    def name(self) -> str:
        return self.query.name

    @property
    def channel(self) -> str | None:
        """The one that it writes."""
        return next(iter(self.query.writes), None)

    @property
    def is_ours(self) -> bool:
        """Whether its sink is one that goes back with a rewind."""
        return self.sink is not None or self.channel is not None

    @property
    def is_exact(self) -> bool:
        """Whether rows that come again do no harm, as far as one can say before it runs."""
        return self.is_ours or bool(self.is_rewindable)


def ask(
    name: str,
    *,
    reads: Names = (),
    writes: Names = (),
    sink: Sink | None = None,
    is_rewindable: bool | None = None,
) -> Asked:
    """:raises Misused: when a name is none, or there is more than one sink."""
    query = Query(name=check_name("query", name), reads=_channels(reads), writes=_channels(writes))
    return Asked(query=query, sink=sink, is_rewindable=is_rewindable)


def _channels(given: Names) -> frozenset[str]:
    names = (given,) if isinstance(given, str) else given
    return frozenset(check_name("channel", name) for name in names)
