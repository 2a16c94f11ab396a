"""The agent: what a Spark driver does to be checkpointed, restored and fenced."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from airflow_provider_ckpt.protocol.codec import Json
from airflow_provider_ckpt.protocol.cut import Query
from airflow_provider_ckpt.protocol.errors import Misused, Refused
from airflow_provider_ckpt.protocol.paths import check_name
from airflow_provider_ckpt.spark import plan
from airflow_provider_ckpt.spark.asking import Asked, Names, ask
from airflow_provider_ckpt.spark.attachment import Attachment
from airflow_provider_ckpt.spark.claiming import claim_attempt
from airflow_provider_ckpt.spark.conf import AgentConf, read_conf
from airflow_provider_ckpt.spark.folders import AttemptFolder
from airflow_provider_ckpt.spark.queries import Queries, Started
from airflow_provider_ckpt.spark.sinks.base import Name, Sink
from airflow_provider_ckpt.spark.sinks.plain import PlainSeat

_log = logging.getLogger("airflow_provider_ckpt.spark")
_ONE_HOST = ("local", "local-cluster")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sink:
    text: str  # as Spark describes it
    is_rewindable: bool


class CheckpointAgent:
    """Makes the streaming queries of a Spark program one pipeline that can be checkpointed and restored.

    ::

        with CheckpointAgent.from_conf(spark) as ckpt:
            orders = spark.readStream.schema("k int, v int").json("/data/orders")
            totals = orders.groupBy("k").sum("v")
            ckpt.start("totals", totals.writeStream.outputMode("update").foreachBatch(upsert), is_rewindable=True)
            ckpt.await_termination()

    Guaranteed: a completed checkpoint is a consistent cut over all queries; from it, the pipeline goes on with exactly
    that state at exactly the next batch. No two drivers run one attempt; a driver that was replaced stops.
    Not guaranteed: that a sink which knows only batch ids is exact after a rewind (it is refused unless you say
    `is_rewindable`), and that a source which forgets can be read again.
    After a restart `from_conf` finds the attempt that a restore has planned, or restores by itself: the dead attempt's
    tip where it is intact, else the newest checkpoint.
    """

    def __init__(self, spark: SparkSession, conf: AgentConf, attachment: Attachment | None, queries: Queries) -> None:
        self._spark = spark
        self._conf = conf
        self._attachment = attachment
        self._queries = queries
        self._plain: list[StreamingQuery] = []  # started as plain Spark

    @classmethod
    def from_conf(cls, spark: SparkSession) -> "CheckpointAgent":
        """Claim the attempt that Spark's configuration names; without `spark.ckpt.pipeline`, run as plain Spark.

        :raises Refused: when a living driver runs the pipeline, or it is meant to be stopped.
        :raises LostRace: when another driver has claimed the same attempt.
        """
        given = {**dict(spark.sparkContext.getConf().getAll()), **_ours(spark.conf.getAll)}
        conf = read_conf(given.get, frozenset(given))
        queries = Queries(spark)
        if conf.pipeline is None:
            _log.warning("spark.ckpt.pipeline is not set: this runs as plain Spark, nothing is checkpointed.")
            return cls(spark, conf, None, queries)
        _refuse_distant_sqlite(given.get("spark.master", ""), conf)
        claimed = claim_attempt(conf, conf.pipeline, spark.sparkContext.applicationId)
        attachment = Attachment(spark, claimed, queries)
        attachment.start()
        return cls(spark, conf, attachment, queries)

    # the queries

    def start(
        self,
        name: str,
        writer: DataStreamWriter,
        *,
        reads: Names = (),
        writes: Names = (),
        sink: Sink | None = None,
        is_rewindable: bool | None = None,
    ) -> StreamingQuery:
        """Start a query as part of the pipeline.

        :param reads: the channels that it reads by `spark.readStream…(ckpt.channel(name))`.
        :param writes: the channel that it writes by Spark's file sink; its path is set here.
        :param sink: what outside readers read: it commits with every checkpoint, exactly once; see
            `airflow_provider_ckpt.spark.sinks`.
        :param is_rewindable: True when the sink is keyed by data, not by batch ids, so that rows which come again
            under other batch ids do no harm. Channels, memory, console and noop are.
        """
        asked = ask(name, reads=reads, writes=writes, sink=sink, is_rewindable=is_rewindable)
        writer = writer.queryName(name)
        if self._attachment is None:
            return self._start_plain(asked, writer)
        return self._start_attached(self._attachment, asked, writer)

    def location(self, name: str, *, reads: Names = (), is_rewindable: bool = False) -> str:
        """The checkpointLocation, a URI, of a query that the program starts itself, with `queryName(name)`."""
        asked = ask(name, reads=reads, is_rewindable=is_rewindable)
        if self._attachment is not None:
            self._attachment.check_fits(asked, {})
            self._queries.expect_others()
            with self._attachment.announced(asked.query, {}):
                self._attachment.add(
                    Started(asked=asked.query, properties={"is_rewindable": is_rewindable}, start_again=None)
                )
        return self._folder.location(name).as_uri()

    def channel(self, name: str) -> str:
        """The folder, as a URI, through which one query hands rows to another: durable, of this attempt alone."""
        folder = self._folder.channel(check_name("channel", name))
        folder.mkdir(parents=True, exist_ok=True)
        return folder.as_uri()

    def all_started(self) -> None:
        """Say that every query of the program is started: from now on checkpoints count.

        For a program that does not wait, as in a notebook: `await_termination` says it as well. Before that a
        checkpoint could lack a query, and the whole program could not go on from it.

        :raises Refused: when a query that the attempt goes on with is not started.
        """
        if self._attachment is not None:
            self._attachment.has_all()

    # the end

    def await_termination(self) -> None:
        """Wait until the pipeline has ended, and leave nothing behind that no checkpoint has.

        Queries that end by themselves (`AvailableNow`) and pipelines that are stopped from outside get a last
        checkpoint.

        :raises Fenced: when a newer attempt has taken over.
        :raises CkptError: when a query failed; the attempt is recorded as failed.
        """
        if self._attachment is None:
            for query in (*self._plain, *self._spark.streams.active):
                query.awaitTermination()
            return
        self._attachment.wait()

    def close(self, failure: str | None = None) -> None:
        """Stop the queries and end the attempt, unless it has ended."""
        if self._attachment is not None:
            self._attachment.close(failure)

    def __enter__(self) -> "CheckpointAgent":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(None if error is None else f"{type(error).__name__}: {error}")

    @property
    def attempt(self) -> int | None:
        """Which attempt this driver is, 1, 2, …; None as plain Spark.

        A fencing token: a target that remembers the largest one it has seen can refuse an old driver that wakes up in
        the middle of a `foreachBatch`.
        """
        return None if self._attachment is None else self._folder.attempt

    # inside

    @property
    def _folder(self) -> AttemptFolder:
        if self._attachment is not None:
            return self._attachment.folder
        return AttemptFolder(work=self._conf.places.work, pipeline=f"plain-{_safe(self._spark)}", attempt=0)

    def _start_plain(self, asked: Asked, writer: DataStreamWriter) -> StreamingQuery:
        if asked.channel is not None:
            writer = writer.option("path", self._folder.channel(asked.channel).as_uri())
        if asked.sink is not None:
            name = Name(pipeline=self._folder.pipeline, sink=f"{asked.name}/sink")
            writer = writer.foreachBatch(
                PlainSeat(name=name, sink=asked.sink, scratch=self._folder.scratch(asked.name))
            )
        query = writer.option("checkpointLocation", self._folder.location(asked.name).as_uri()).start()
        self._plain.append(query)
        return query

    def _start_attached(self, attachment: Attachment, asked: Asked, writer: DataStreamWriter) -> StreamingQuery:
        plan.refuse_deleted_input(asked.name, writer)
        _refuse_unsaid(asked.query, {self._folder.channel_at(path) for path in plan.paths_of(writer)})
        described, ignored = plan.follow_pinned(asked.name, plan.describe(writer), attachment.pinned(asked.name))
        attachment.check_fits(asked, described)  # before anything is laid out, or seen by outside readers
        for text in ignored:
            _log.warning("%s", text)
        seat = None if asked.sink is None else attachment.open_sink(asked.name, asked.sink)
        if asked.channel is not None:
            writer = writer.option("path", self._folder.channel(asked.channel).as_uri())
        if seat is not None:
            writer = writer.foreachBatch(seat)
        writer = writer.option("checkpointLocation", self._folder.location(asked.name).as_uri())
        made_of: dict[str, Json] = {
            **described,
            "target": None if asked.sink is None else asked.sink.describe(),
        }
        with attachment.announced(asked.query, made_of):
            query = _launch(asked.name, writer)
            judged = _judge_sink(asked, query)
            attachment.add(
                Started(
                    asked=asked.query,
                    properties={**made_of, "sink": judged.text, "is_rewindable": judged.is_rewindable},
                    start_again=writer.start,
                    seat=seat,
                    is_bounded=plan.is_bounded(query),
                    query=query,
                )
            )
        return query


def _ours(session: Mapping[str, str]) -> dict[str, str]:
    """What a notebook has set on its session, after Spark was started."""
    return {key: value for key, value in session.items() if key.startswith("spark.ckpt.")}


def _launch(name: str, writer: DataStreamWriter) -> StreamingQuery:
    query = writer.start()
    execution = plan.execution_of(query)
    if not execution.startswith("MicroBatchExecution") or "RealTime" in execution:
        query.stop()
        raise Refused(
            f"Query {name} runs as {execution}: only micro-batches that are committed one after the other can be "
            "checkpointed exactly. Remove the continuous or real-time trigger, or asynchronous progress tracking."
        )
    return query


def _refuse_unsaid(query: Query, read: set[str | None]) -> None:
    if unsaid := sorted(channel for channel in read if channel is not None and channel not in query.reads):
        raise Refused(
            f"Query {query.name} reads the channel {unsaid[0]!r} and does not say so: no cut would be consistent. "
            f"Start it with reads={unsaid[0]!r}."
        )


def _judge_sink(asked: Asked, query: StreamingQuery) -> _Sink:
    kind, text = plan.sink_of(query)
    if asked.sink is not None and plan.output_mode_of(query) == "Complete":
        query.stop()
        raise Refused(
            f"Query {asked.name} gives its whole result with every batch (outputMode complete), and its sink would "
            "publish all of it each time. Use update, with a sink that replaces rows by key, or append."
        )
    if kind == "FileStreamSink" and asked.is_rewindable and not asked.is_ours:
        query.stop()
        raise Refused(
            f"Query {asked.name} writes files to a path of its own: after a rewind Spark would skip batch ids that it "
            "has seen there, and lose rows. Start it with sink=FilesSink(…) instead of the format and the path."
        )
    is_known = asked.is_ours or plan.is_harmless(kind)
    is_rewindable = is_known if asked.is_rewindable is None else asked.is_rewindable
    return _Sink(text=text, is_rewindable=is_rewindable)


def _safe(spark: SparkSession) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in str(spark.sparkContext.appName))


def _refuse_distant_sqlite(master: str, conf: AgentConf) -> None:
    is_one_host = master.partition("[")[0] in _ONE_HOST
    if conf.places.metastore_url.startswith("sqlite") and not is_one_host:
        raise Misused(
            f"The metastore is a SQLite file and Spark runs on {master}: executors on other hosts could not reach it. "
            "Use PostgreSQL: set CKPT_METASTORE, or spark.ckpt.metastore.secret, to its URL."
        )
