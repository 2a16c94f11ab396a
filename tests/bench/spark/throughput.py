"""Rows per second of a stateful query with a checkpoint every 10 s, against the same query with none.

One query runs all the time: `rate-micro-batch`, which makes the same rows in every run, into an aggregation on RocksDB
with changelogs, each batch as soon as the one before has ended. Time is cut into windows, each from a commit to a
commit: in turns one without a checkpoint, and two with one right at their beginning. The first of these is not
measured: it carries what two windows wrote, the second what one did, as it is when every window has one. Each that is
measured is set against the mean of the two without next to it. What is reported is the rate of all that are measured
against that of all they are set against, with its interval: nineteen times of twenty that of as many pairs would lie
there (by drawing from those seen). Where that reaches further than the goal allows, the machine was too busy for a
verdict, and none is given. The *control* is the same for the windows without a checkpoint, each against those without
before and after it: it should be 1.
The agent is attached in all of them; without checkpoints it asks the store twice a second.

Beside the rate, the processor time of the driver, its JVM and its Python workers is counted for each row: that does not
change with what else the machine does. On S3 the server's own is shown as well: it shares our cores, and takes from the
query what a real one would not.
"""

import os
import random
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
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
DRAWS = 4_000


@dataclass(frozen=True, slots=True)
class Window:
    rate: float  # rows per second
    cpu: float  # seconds of the processor for each row
    server: float  # the part of all cores that the S3 server took
    taken: Taken | None


@dataclass(frozen=True, slots=True)
class Pair:
    """A window, and the two that it is set against."""

    window: Window
    others: tuple[Window, Window]

    @property
    def against(self) -> float:
        return mean(each.rate for each in self.others)

    @property
    def cost(self) -> float:
        return mean(each.cpu for each in self.others) / self.window.cpu


def run(stage: Stage) -> None:
    stage.spark.conf.set(CHANGELOG, "true")
    stage.spark.conf.set("spark.sql.shuffle.partitions", "4")
    for storage in stage.storages:
        pipeline = storage.replace(" ", "-")
        with stage.attached(pipeline, storage) as agent:
            query = _start(stage, agent)
            time.sleep(stage.sizes.warm_up)
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
    run = [windows.run(is_with=number % 3 != 0) for number in range(3 * stage.sizes.windows + 1)]
    pairs = [Pair(run[at], (run[at - 2], run[at + 1])) for at in range(2, len(run), 3)]
    for each in pairs:
        taken = each.window.taken
        assert taken is not None
        others = ", ".join(f"{other.rate:,.0f}" for other in each.others)
        stage.say(
            f"{storage}: {each.window.rate:,.0f} rows/s against {others}: {_ratio([each]):.3f}; moved "
            f"{megabytes(taken.new_bytes)} in {taken.new_files:,} files in {show(taken.by_agent)}"
        )
    _report(stage, f"rows/s with a checkpoint every {stage.sizes.window:g} s, {storage}", pairs, GOAL)
    control = [Pair(run[at], (run[at - 3], run[at + 3])) for at in range(3, len(run) - 3, 3)]
    _report(stage, f"rows/s without one, again, {storage}", control, None)


def _report(stage: Stage, what: str, pairs: Sequence[Pair], goal: Goal | None) -> None:
    least, most = _interval(pairs)
    is_quiet = most - least <= 2 * ALLOWED
    stage.report(
        Line(
            what=what if is_quiet else f"{what} (too noisy to judge)",
            ours=f"{mean(each.window.rate for each in pairs):,.0f}/s",
            against=f"none, {mean(each.against for each in pairs):,.0f}/s; {len(pairs)} "
            f"pairs, {least:.3f}..{most:.3f}; by processor time {median(each.cost for each in pairs):.3f}; the S3 "
            f"server took {median(each.window.server for each in pairs):.1%} of the cores",
            ratio=_ratio(pairs),
            goal=goal if is_quiet else None,
        )
    )


def _ratio(pairs: Sequence[Pair]) -> float:
    return sum(each.window.rate for each in pairs) / sum(each.against for each in pairs)


def _interval(pairs: Sequence[Pair]) -> tuple[float, float]:
    """Where the ratio of as many would lie nineteen times of twenty."""
    chance = random.Random(1)  # the same pairs have the same interval
    ratios = sorted(_ratio(chance.choices(pairs, k=len(pairs))) for _ in range(DRAWS))
    return ratios[DRAWS // 40], ratios[-DRAWS // 40]


class _Windows:
    def __init__(self, stage: Stage, pipeline: str, storage: str) -> None:
        self._stage = stage
        self._pipeline = pipeline
        self._storage = storage
        self._location = Location(stage.folder_of(pipeline).location("totals"))

    def run(self, *, is_with: bool) -> Window:
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
    for name in filter(str.isdecimal, os.listdir("/proc")):  # noqa: PTH208 - a glob raises when one ends meanwhile
        with suppress(OSError):  # it ended while we look
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")
