"""From the barrier to the last acknowledgement, by the number of state partitions.

A real query with 200 partitions first, and then locations that are written by hand, with 1,000 and 5,000 partitions of
one operator, two small files each: those are given to the agent's own `Checkpointing`, whose files are made durable by
real Spark tasks. The two sizes take turns. *First* stores every file, *next* one new file of each partition. Linear
means: a partition of 5,000 costs at most 1.5 times one of 1,000. By the clock of the store.
"""

import itertools
from collections.abc import Sequence
from functools import partial
from statistics import median

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from airflow_provider_ckpt.protocol.cut import Graph, Query
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.spark.agent import CheckpointAgent
from airflow_provider_ckpt.spark.capturing import Member
from airflow_provider_ckpt.spark.checkpointing import Checkpointing, Site
from airflow_provider_ckpt.spark.conf import AgentConf
from airflow_provider_ckpt.spark.holding import Known
from airflow_provider_ckpt.spark.jobs import run_as_tasks
from airflow_provider_ckpt.spark.persisting import Order, Share
from airflow_provider_ckpt.spark.streaming.location import Location
from tests.bench.measure import Goal, Line, Seconds, median_of, show
from tests.bench.sample import ATTEMPT, QUERY, run_pipeline
from tests.bench.spark.stage import Stage, Taken, copy_folder, flush, remove, until
from tests.unit.spark.locations import LocationOnDisk

FILES = ("3.snapshot", "4.delta")
ROUNDS = 2


def run(stage: Stage) -> None:
    for storage in stage.storages:
        _live(stage, storage)
        _synthetic(stage, storage)


# a real query


def _live(stage: Stage, storage: str) -> None:
    count, pipeline = stage.sizes.live_partitions, f"live-{storage.replace(' ', '-')}"
    stage.spark.conf.set("spark.sql.shuffle.partitions", str(count))
    with stage.attached(pipeline, storage) as agent:
        query = _start(stage, agent)
        location = stage.folder_of(pipeline).location("totals")
        until(lambda: query.exception() or (Location(location).committed or 0) >= 3)
        stage.take(pipeline, storage)  # starts the Python workers
        pairs = [_with_copy(stage, pipeline, storage) for _ in range(5)]
        query.stop()
    takens, copies = [taken for taken, _ in pairs], [copied for _, copied in pairs]
    acks = [taken.to_last_ack for taken in takens]
    stage.say(f"{count} live partitions: barrier to last ack {', '.join(map(show, acks))}, the poll of 0.5 s included")
    stage.say(f"{count} live partitions: new files {', '.join(f'{taken.new_files:,}' for taken in takens)}")
    stage.say(
        f"{count} live partitions: without the poll, to COMPLETED "
        f"{', '.join(show(taken.by_agent) for taken in takens)}; cp -r {', '.join(map(show, copies))}"
    )
    stage.report(
        Line(
            what=f"barrier to last ack, {count} live state partitions, {storage}",
            ours=f"{show(median(acks))}, at most {show(max(acks))}",
            against=f"cp -r of the location, {show(median_of(copies))}",
            ratio=median(ack / copied for ack, copied in zip(acks, copies, strict=True)),
        )
    )


def _start(stage: Stage, agent: CheckpointAgent) -> StreamingQuery:
    reader = stage.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10_000)
    rows = reader.option("numPartitions", 2).option("startTimestamp", 0).load()
    totals = rows.groupBy((F.col("value") * 7919 % 50_000).alias("k")).agg(F.count("*"), F.sum("value"))
    writer = totals.writeStream.outputMode("update").format("noop").trigger(processingTime="0 seconds")
    return agent.start("totals", writer)


def _with_copy(stage: Stage, pipeline: str, storage: str) -> tuple[Taken, Seconds]:
    location = Location(stage.folder_of(pipeline).location("totals"))
    before = location.committed or 0
    until(lambda: (location.committed or 0) > before)  # else there would be nothing new to store
    taken = stage.take(pipeline, storage)
    copied = stage.folder / "copy"
    seconds = copy_folder(location.root, copied, is_strict=False)  # files come and go
    remove(copied)
    return taken, seconds


# locations that are written by hand


def _synthetic(stage: Stage, storage: str) -> None:
    few, many = (Synthetic(stage, storage, count) for count in stage.sizes.partitions)
    few.take_first()  # connected, workers started
    rounds = [_round(few, many, turn) for turn in range(ROUNDS)]
    for name in ("first", "next"):
        costs = {each.count: [found[name, each.count] / each.count for found in rounds] for each in (few, many)}
        small, large = median_of(costs[few.count]), median_of(costs[many.count])
        for each in (few, many):
            stage.say(
                f"{storage}: {name} of {each.count:,} partitions: "
                f"{', '.join(show(cost * each.count) for cost in costs[each.count])}"
            )
        stage.report(
            Line(
                what=f"{name}: barrier to last ack, for each partition, {storage}",
                ours=f"{show(large)} of {many.count:,} ({show(large * many.count)})",
                against=f"{show(small)} of {few.count:,} ({show(small * few.count)})",
                ratio=median(theirs / ours for ours, theirs in zip(costs[few.count], costs[many.count], strict=True)),
                goal=Goal(most=1.5),
            )
        )


def _round(few: "Synthetic", many: "Synthetic", turn: int) -> dict[tuple[str, int], Seconds]:
    ordered = (few, many) if turn % 2 else (many, few)  # the other way round next time
    first = {("first", each.count): each.take_first() for each in ordered}
    next_ = {("next", each.count): each.take_next() for each in reversed(ordered)}
    return first | next_


class Synthetic:
    """A location with many partitions, and an agent's site on it."""

    def __init__(self, stage: Stage, storage: str, count: int) -> None:
        self.count = count
        self._stage, self._storage = stage, storage
        self._pipeline = f"{storage.replace(' ', '-')}-{count}"
        self._folder = stage.folder_of(self._pipeline)
        self._graph = Graph((Query(name=QUERY),))
        self._batches = itertools.count(4)
        run_pipeline(stage.store, self._pipeline)
        self._location = LocationOnDisk(self._folder.location(QUERY))
        self._location.run(3)
        self._location.describe(partitions=count)
        self._location.state(*FILES, partitions=count)
        tasks = AgentConf(pipeline=None, places=stage._places(storage)).tasks
        self._site = Site(
            context=stage.context(storage),
            folder=self._folder,
            known=Known(),
            run_shares=partial(self._run_shares, tasks),
            metastore_url=stage.metastore_url,
            storage_url=stage.storages[storage],
        )

    def take_first(self) -> Seconds:
        self._site.known.forget()
        return self._take()

    def take_next(self) -> Seconds:
        batch = next(self._batches)
        self._location.see(batch, [f"{batch}.json"])
        self._location.plan(batch, {"logOffset": batch})
        self._location.state(f"{batch + 1}.delta", partitions=self.count)
        self._location.commit(batch)
        return self._take()

    def _take(self) -> Seconds:
        flush()
        member = Member(name=QUERY, reads=(), writes=(), properties={}, is_active=lambda: True)
        self._stage.store.attempts.heartbeat(self._pipeline, ATTEMPT, "driver")  # no agent beats here
        ref = self._stage.trigger(self._pipeline)
        checkpoint = Checkpointing(self._site, ref, lambda: (self._graph, {QUERY: member})).run()
        assert checkpoint is not None
        assert checkpoint.phase is Phase.COMPLETED
        return self._stage.see(ref, self._storage).to_last_ack

    def _run_shares(self, tasks: int, order: Order, shares: Sequence[Share]) -> None:
        run_as_tasks(self._stage.spark, order, shares, tasks)
