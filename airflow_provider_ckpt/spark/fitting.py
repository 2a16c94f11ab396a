"""Whether the queries that a program starts go on with what its attempt starts from: by name, and by what they are."""

from airflow_provider_ckpt.protocol.codec import JsonObject
from airflow_provider_ckpt.protocol.errors import Misused, Refused
from airflow_provider_ckpt.protocol.records import Rung
from airflow_provider_ckpt.spark import plan
from airflow_provider_ckpt.spark.asking import Asked
from airflow_provider_ckpt.spark.claiming import Claimed
from airflow_provider_ckpt.spark.queries import Queries


class Fitting:
    def __init__(self, claimed: Claimed, queries: Queries) -> None:
        self._claimed = claimed
        self._origin = claimed.origin
        self._queries = queries

    @property
    def missing(self) -> list[str]:
        """What the attempt goes on with, and the program has not started."""
        return [query.name for query in self._origin.graph.queries if query.name not in self._queries]

    def check(self, asked: Asked, made_of: JsonObject) -> None:
        """:raises Refused: when a query does not go on with what the attempt starts from."""
        if asked.name not in self._origin.graph.names:
            self._check_new(asked)
        if asked.name in self._queries:
            raise Misused(f"Query {asked.name} was started already: give each query of a pipeline a name of its own.")
        other = next((each.name for each in self._queries if asked.query.writes & each.asked.writes), None)
        if other is not None:
            raise Misused(f"Queries {other} and {asked.name} write one channel: each needs a channel of its own.")
        difference = plan.find_difference(asked.name, self._origin.described_of(asked.name), made_of)
        if difference is not None:
            raise Refused(difference)

    def check_all(self) -> None:
        """When the program has started all that it has.

        :raises Refused: when a query is missing.
        """
        if missing := self.missing:
            raise Refused(
                f"{self._goes_on()}; this program has not started {', '.join(missing)}: their state would be lost."
            )
        written = {channel for each in self._queries for channel in each.asked.writes}
        for each in self._queries:
            if unknown := sorted(each.asked.reads - written):
                raise Misused(
                    f"Query {each.name} reads the channel {unknown[0]!r}, and no query of this program writes it."
                )

    def _check_new(self, asked: Asked) -> None:
        """A query that nobody knows may be renamed: it is new when all the others have been started."""
        if missing := self.missing:
            raise Refused(
                f"{self._goes_on()}; this program starts {asked.name!r}, and has not started {missing[0]}. Give a "
                "query that was renamed its old name; start one that is new after the others."
            )
        decided = self._origin.decided
        readers = [each.name for each in self._origin.graph.queries if each.reads & asked.query.reads]
        if readers and decided is not None:
            raise Refused(
                f"Query {asked.name} is new, and reads a channel of which {decided.ref} keeps only what {readers[0]} "
                "had not read: it would miss the rest. Let it read what the channel's writer reads, or start it in a "
                "pipeline of its own (`ckpt init NAME`)."
            )
        sink = f"{asked.name}/sink"
        if not asked.is_exact and sink not in self._claimed.attempt.accepted and self._has_run(asked.name):
            raise Refused(
                f"Query {asked.name} has run, and nothing of that is left where attempt {self._number} starts: its "
                "rows would come again. If its sink is keyed by data, say is_rewindable=True; or accept it with "
                f"`ckpt restore {self._claimed.pipeline} --accept-duplicates {sink}`."
            )

    def _has_run(self, name: str) -> bool:
        """In an attempt before this one, since somebody allowed a start from nothing."""
        pipeline, store = self._claimed.pipeline, self._claimed.context.store
        attempts = [each for each in store.attempts.of(pipeline) if each.number <= self._number]
        fresh = max((each.number for each in attempts if each.rung is Rung.FRESH), default=0)
        earlier = [each.number for each in attempts if fresh <= each.number < self._number]
        return any(name in store.attempts.graph(pipeline, number).names for number in earlier)

    def _goes_on(self) -> str:
        known = ", ".join(query.name for query in self._origin.graph.queries)
        return f"Attempt {self._number} goes on with the queries {known}"

    @property
    def _number(self) -> int:
        return self._claimed.attempt.number
