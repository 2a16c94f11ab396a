"""Rows per second of a stateful query with a checkpoint every 10 s, against the same query with none.

One query runs all the time: `rate-micro-batch`, which makes the same rows in every run, into an aggregation on RocksDB
with changelogs, each batch as soon as the one before has ended. Time is cut into windows, each from a commit to a
commit. A round has three: one with a checkpoint right at its beginning, one without, and the *control*, without one as
well; their order changes from round to round. Before the one with a checkpoint another is taken, and a window passes
that is not measured: so it carries what one window wrote, as it does when each has one. With a checkpoint is set
against the mean of the two others; control against without says how much two equal windows differ. When the median of
that, which should be 1, is itself off by more than the goal allows, the machine was too busy for a verdict, and none is
given.
The agent is attached in all of them; without checkpoints it asks the store twice a second.

Beside the rate, the processor time of the driver, its JVM and its Python workers is counted for each row: that does not
change with what else the machine does. On S3 the server's own is shown as well: it shares our cores, and takes from the
query what a real one would not.
"""

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import cycle, islice, permutations
from pathlib import Path
from statistics import mean, median

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from airflow_provider_ckpt.spark.agent import CheckpointAgent
from airflow_provider_ckpt.spark.streaming.location import Location
from tests.bench.measure import Goal, Line, show
from tests.bench.spark.s3_server import SESSION
from tests.bench.spark.stage import Stage, Taken, megabytes, until

CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
ROWS = 20_000  # of a batch
KEYS = 200_000
ALLOWED = 0.02
GOAL = Goal(least=1 - ALLOWED)
WARM_UP = 25  # seconds: Java compiles what it runs often


@dataclass(frozen=True, slots=True)
class Window:
    rate: float  # rows per second
    cpu: float  # seconds of the processor for each row
    server: float  # the part of all cores that the S3 server took
    taken: Taken | None


Round = Mapping[str, Window]  # by kind
ORDERS = sorted(permutations(("with", "without", "control")), key=lambda order: order.index("with"))[::-1]


def run(stage: Stage) -> None:
    stage.spark.conf.set(CHANGELOG, "true")
    stage.spark.conf.set("spark.sql.shuffle.partitions", "4")
    for storage in stage.storages:
        pipeline = storage.replace(" ", "-")
        with stage.attached(pipeline, storage) as agent:
            query = _start(stage, agent)
            time.sleep(WARM_UP / 2 if storage == "S3" else WARM_UP)
            stage.take(pipeline, storage)  # the first one carries everything
            _compare(stage, pipeline, storage)
            query.stop()


def _start(stage: Stage, agent: CheckpointAgent) -> StreamingQuery:
    reader = stage.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS)
    rows = reader.option("numPartitions", 2).option("startTimestamp", 0).load()
    totals = rows.groupBy((F.col("value") * 7919 % KEYS).alias("k")).agg(F.count("*"), F.sum("value"))
    writer = totals.writeStream.outputMode("update").format("noop").trigger(processingTime="0 seconds")
    return agent.start("totals", writer)


def _compare(stage: Stage, pipeline: str, storage: str) -> None:
    windows = _Windows(stage, pipeline, storage)
    rounds = [windows.round(order) for order in islice(cycle(ORDERS), stage.sizes.windows)]
    for each in rounds:
        taken = each["with"].taken
        assert taken is not None
        stage.say(
            f"{storage}: {', '.join(f'{kind} {window.rate:,.0f}' for kind, window in each.items())} rows/s: "
            f"{_ratio(each, 'with'):.3f}, control {_ratio(each, 'control'):.3f}; moved {megabytes(taken.new_bytes)} in "
            f"{taken.new_files:,} files in {show(taken.by_agent)}"
        )
    is_quiet = abs(median(_ratio(each, "control") for each in rounds) - 1) <= ALLOWED
    doubt = "" if is_quiet else " (too noisy to judge)"
    for kind, what, goal in (
        ("with", f"rows/s with a checkpoint every {stage.sizes.window:g} s{doubt}", GOAL if is_quiet else None),
        ("control", "rows/s without one, again: how much equal windows differ", None),
    ):
        ratios = [_ratio(each, kind) for each in rounds]
        costs = [_cost(each, kind) for each in rounds]
        without = median(_without(each, kind) for each in rounds)
        stage.report(
            Line(
                what=f"{what}, {storage}",
                ours=f"{median(each[kind].rate for each in rounds):,.0f}/s",
                against=f"none, {without:,.0f}/s; {len(rounds)} rounds {min(ratios):.3f}..{max(ratios):.3f}; by "
                f"processor time {median(costs):.3f} ({min(costs):.3f}..{max(costs):.3f}); the S3 server took "
                f"{median(each[kind].server for each in rounds):.1%} of the cores",
                ratio=median(ratios),
                goal=goal,
            )
        )


def _ratio(found: Round, kind: str) -> float:
    return found[kind].rate / _without(found, kind)


def _without(found: Round, kind: str) -> float:
    """The rate to set it against."""
    return mean(found[each].rate for each in _others(kind))


def _cost(found: Round, kind: str) -> float:
    return mean(found[each].cpu for each in _others(kind)) / found[kind].cpu


def _others(kind: str) -> tuple[str, ...]:
    return ("without", "control") if kind == "with" else ("without",)


class _Windows:
    def __init__(self, stage: Stage, pipeline: str, storage: str) -> None:
        self._stage = stage
        self._pipeline = pipeline
        self._storage = storage
        self._location = Location(stage.folder_of(pipeline).location("totals"))

    def round(self, order: Sequence[str]) -> Round:
        return {kind: self._run(is_with=kind == "with") for kind in order}

    def _run(self, *, is_with: bool) -> Window:
        if is_with:
            self._stage.take(self._pipeline, self._storage)
            time.sleep(self._stage.sizes.window)
        began, before = self._next_commit()
        used, served = _processor_seconds(os.getsid(0)), _processor_seconds(_server())
        ref = self._stage.trigger(self._pipeline) if is_with else None
        time.sleep(self._stage.sizes.window)
        ended, after = self._next_commit()
        used, served = _processor_seconds(os.getsid(0)) - used, _processor_seconds(_server()) - served
        taken = None if ref is None else self._stage.see(ref, self._storage)
        rows = (after - before) * ROWS
        cores = (os.cpu_count() or 1) * (ended - began)
        return Window(rate=rows / (ended - began), cpu=used / rows, server=served / cores, taken=taken)

    def _next_commit(self) -> tuple[float, int]:
        """When the next batch is committed, and which it is; by the time of its file, so that looking late is fine."""
        before = self._location.committed or 0
        until(lambda: (self._location.committed or 0) > before)
        batch = self._location.committed or 0
        return (self._location.root / "commits" / str(batch)).stat().st_mtime, batch


def _server() -> int:
    return int(os.environ[SESSION])


def _processor_seconds(session: int) -> float:
    """Of all processes of a session, and of those that they have outlived."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended while we look
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")
