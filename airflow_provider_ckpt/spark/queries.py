"""The queries of one driver: how they were started, what they are made of, and whether they run."""

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from pyspark.sql.streaming.query import StreamingQuery

from airflow_provider_ckpt.protocol.codec import JsonObject
from airflow_provider_ckpt.protocol.cut import Graph, Query
from airflow_provider_ckpt.protocol.errors import Misused
from airflow_provider_ckpt.spark.capturing import Member
from airflow_provider_ckpt.spark.failure_cause import cause_of
from airflow_provider_ckpt.spark.sinks.seat import Seat


@dataclass(slots=True, kw_only=True)
class Started:
    """One query; one that its own program starts is found by its name once it runs."""

    asked: Query
    properties: JsonObject
    start_again: Callable[[], StreamingQuery] | None
    seat: Seat | None = None  # of a sink that publishes with checkpoints
    is_bounded: bool = False  # it ends by itself when it has read what was there when it started
    query: StreamingQuery | None = None
    ended: "Ended | None" = None  # of one that had ended before it was looked for
    is_paused: bool = False

    @property
    def name(self) -> str:
        return self.asked.name

    @property
    def is_found(self) -> bool:
        return self.query is not None or self.ended is not None

    @property
    def is_active(self) -> bool:
        return self.query is not None and self.query.isActive

    @property
    def progress(self) -> int | None:
        """The newest batch that Spark says is committed; it reports one while it waits for the next as well."""
        reported = None if self.query is None else self.query.lastProgress
        if reported is None:
            return None
        batch = int(reported["batchId"]) if "addBatch" in reported["durationMs"] else int(reported["batchId"]) - 1
        return None if batch < 0 else batch

    @property
    def failure(self) -> str | None:
        """Why it ended, when it did not end by itself or by being stopped."""
        error = self._error()
        return None if error is None else f"Query {self.name} failed: {cause_of(error)}"

    def _error(self) -> str | None:
        if self.ended is not None:
            return self.ended.error
        if self.query is None or self.is_paused or self.query.isActive:
            return None
        error = self.query.exception()
        return None if error is None else str(error)

    def run_again(self) -> None:
        """From where it is."""
        if self.start_again is not None:
            self.query = self.start_again()

    def stop(self) -> None:
        if self.query is not None:
            with suppress(PySparkException, Py4JError, OSError):  # it or the JVM has failed: the others must stop too
                self.query.stop()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    error: str | None


class _Ends(StreamingQueryListener):
    """Hears of queries that their own program starts, and which may end before anybody looks for them."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}  # by the id of a run
        self.ended: dict[str, Ended] = {}  # by name

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - so Spark calls it
        if event.name is not None:
            self._names[str(event.runId)] = event.name

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        pass  # its location says more

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        if (name := self._names.pop(str(event.runId), None)) is not None:
            self.ended[name] = Ended(error=event.exception)


class Queries:
    """All of them, by name; safe to use from the agent's threads."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._ends: _Ends | None = None
        self._started: dict[str, Started] = {}
        self._lock = threading.RLock()

    def add(self, started: Started) -> None:
        with self._lock:
            if started.name in self._started:
                raise Misused(f"There are two queries {started.name!r}: each needs a name of its own.")
            self._started[started.name] = started

    def expect_others(self) -> None:
        """From now on hear of queries that the program starts itself."""
        if self._ends is None:
            self._ends = _Ends()
            self._spark.streams.addListener(self._ends)

    def __iter__(self) -> Iterator[Started]:
        with self._lock:
            self._find_missing()
            return iter(list(self._started.values()))

    def get(self, name: str) -> Started:
        return self._started[name]

    def __contains__(self, name: str) -> bool:
        return name in self._started

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._started)

    @property
    def graph(self) -> Graph:
        with self._lock:
            return Graph(tuple(each.asked for each in self._started.values()))

    @property
    def seats(self) -> dict[str, Seat]:
        """The sinks that publish with checkpoints, by participant."""
        with self._lock:
            return {each.seat.name.sink: each.seat for each in self._started.values() if each.seat is not None}

    def members(self) -> dict[str, Member]:
        return {each.name: _member(each) for each in self}

    def stop(self) -> None:
        for each in self:
            each.stop()

    def pause(self) -> None:
        """Stop all of them, side by side: one whose batch takes long holds up no other."""
        with self._lock:  # nobody resumes what is still being stopped
            paused = [each for each in self if each.is_active]
            for each in paused:
                each.is_paused = True
            stopping = [threading.Thread(target=each.stop, name=f"ckpt-pause-{each.name}") for each in paused]
            for thread in stopping:
                thread.start()
            for thread in stopping:
                thread.join()

    def resume(self) -> Iterator[str]:
        """Go on with what was paused, from where it was; yields those that only their own program can start."""
        with self._lock:
            for each in self:
                if not each.is_paused:
                    continue
                if each.start_again is None:
                    yield each.name
                    continue
                each.run_again()
                each.is_paused = False

    @property
    def has_paused(self) -> bool:
        return any(each.is_paused for each in self._started.values())

    def _find_missing(self) -> None:
        missing = [each for each in self._started.values() if not each.is_found]
        if missing:
            running = {query.name: query for query in self._spark.streams.active}
            for each in missing:
                each.query = running.get(each.name)
                if each.query is None and self._ends is not None:
                    each.ended = self._ends.ended.get(each.name)


def _member(each: Started) -> Member:
    return Member(
        name=each.name,
        reads=tuple(sorted(each.asked.reads)),
        writes=tuple(sorted(each.asked.writes)),
        properties=each.properties,
        is_active=lambda: each.is_active,
        progress=lambda: each.progress,
        pledge=None if each.seat is None else each.seat.pledge,
    )
