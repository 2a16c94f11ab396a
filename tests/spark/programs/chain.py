"""Three queries over two channels, a → b → c, each with an interval of its own; run by tests in its own process.

With `twice` b reads its channel by two sources, at two speeds, and every row comes twice.

`run` goes on until it is killed. `drain` starts again from each checkpoint that it is told, one after the other, and
runs everything that there is through: first a, then b, then c, in batches as large as can be, so none is like before.
"""

import json
import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.coordinator.restore import RestoreOptions, restore
from airflow_provider_ckpt.metastore import barriers, open_metastore
from airflow_provider_ckpt.protocol.cut import Graph
from airflow_provider_ckpt.protocol.records import Ref
from airflow_provider_ckpt.protocol.recovery import Target
from airflow_provider_ckpt.spark import CheckpointAgent, capturing
from airflow_provider_ckpt.spark.conf import read_conf
from airflow_provider_ckpt.spark.streaming.location import Location
from airflow_provider_ckpt.storage.opening import open_storage

SCHEMA = "k int, v int, u int, t timestamp"
Trigger = dict[str, str] | dict[str, bool]
DRAIN: Trigger = {"availableNow": True}


def run(spark: SparkSession, source: str, out: str, *, twice: bool) -> None:
    with CheckpointAgent.from_conf(spark) as ckpt:
        _start_c(spark, ckpt, out, {"processingTime": "400 milliseconds"})
        _start_b(spark, ckpt, {"processingTime": "700 milliseconds"}, twice=twice)
        _start_a(spark, ckpt, source, {"processingTime": "150 milliseconds"})
        ckpt.await_termination()


def drain(spark: SparkSession, source: str, out: str, ids: list[int], *, twice: bool) -> None:
    given = dict(spark.sparkContext.getConf().getAll())
    conf = read_conf(given.get)
    context = Context(
        store=open_metastore(conf.places.metastore_url), storage=open_storage(conf.places.storage_url), actor="tester"
    )
    for id_ in ids:
        restore(context, "orders", RestoreOptions(target=Target(id=id_), is_proven_dead=True))
        with CheckpointAgent.from_conf(spark) as ckpt:
            _start_a(spark, ckpt, source, DRAIN).awaitTermination()
            _start_b(spark, ckpt, DRAIN, twice=twice).awaitTermination()
            _start_c(spark, ckpt, out, DRAIN).awaitTermination()
            ckpt.await_termination()
        cut = context.store.barriers.cuts(Ref("orders", id_))["c"].batch
        rows = [*_written(out, attempt=1, upto=cut), *_written(out, attempt=ckpt.attempt)]
        (Path(out) / f"restored-{id_}.json").write_text(json.dumps(sorted(rows)))


def _start_a(spark: SparkSession, ckpt: CheckpointAgent, source: str, trigger: Trigger):  # type: ignore[no-untyped-def]
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", _most(1, trigger)).json(source)
    return ckpt.start("a", _parquet(rows, trigger), writes="ab")


def _start_b(spark: SparkSession, ckpt: CheckpointAgent, trigger: Trigger, *, twice: bool):  # type: ignore[no-untyped-def]
    def read(most: int) -> DataFrame:
        reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", _most(most, trigger))
        return reader.parquet(ckpt.channel("ab"))

    rows = read(4).unionAll(read(1)) if twice else read(2)
    return ckpt.start("b", _parquet(rows, trigger), reads="ab", writes="bc")


def _start_c(spark: SparkSession, ckpt: CheckpointAgent, out: str, trigger: Trigger):  # type: ignore[no-untyped-def]
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", _most(3, trigger)).parquet(ckpt.channel("bc"))
    folder = Path(out) / f"attempt-{ckpt.attempt}"
    folder.mkdir(parents=True)

    def write(batch: DataFrame, number: int) -> None:
        partial = folder / f".{number}"
        partial.write_text(json.dumps([(row.k, row.v) for row in batch.collect()]))
        partial.rename(folder / str(number))

    return ckpt.start("c", rows.writeStream.trigger(**trigger).foreachBatch(write), reads="bc", is_rewindable=True)


def _written(out: str, attempt: int | None, upto: int | None = None) -> list[list[int]]:
    """What an attempt's batches of `c` have given, up to the cut that another one went on from."""
    files = [file for file in Path(out, f"attempt-{attempt}").glob("[0-9]*") if upto is None or int(file.name) <= upto]
    return [row for file in files for row in json.loads(file.read_text())]


def _most(files: int, trigger: Trigger) -> int:
    return 10_000 if trigger is DRAIN else files


def _parquet(rows: DataFrame, trigger: Trigger):  # type: ignore[no-untyped-def]
    return rows.writeStream.outputMode("append").format("parquet").trigger(**trigger)


def take_time(seconds: float) -> None:
    """Time passes between the captures of two queries, so that the order matters."""
    point = capturing.Capturing._point

    def later(self, member):  # type: ignore[no-untyped-def]
        time.sleep(seconds)
        return point(self, member)

    capturing.Capturing._point = later  # type: ignore[method-assign]


def be_naive() -> None:
    """Capture as one would without thinking: upstream first, each where it happens to be."""
    order = Graph.capture_order
    Graph.capture_order = lambda graph: tuple(reversed(order(graph)))  # type: ignore[method-assign, assignment]
    capturing.Capturing._point = lambda self, member: capturing._Point(  # type: ignore[method-assign]
        batch=Location(self._folder.location(member.name)).committed
    )
    barriers._check_order = lambda *_: None
    barriers.find_inconsistency = lambda _: None  # type: ignore[attr-defined, assignment]


if __name__ == "__main__":
    what, input_folder, output, *more = sys.argv[1:]
    session = SparkSession.builder.getOrCreate()
    is_twice = "twice" in more
    if what == "drain":
        drain(session, input_folder, output, [int(each) for each in more if each != "twice"], twice=is_twice)
    else:
        if what == "naive":
            be_naive()
        take_time(3.0 if what == "naive" else 0.5)  # so that the naive one is found out in any weather
        run(session, input_folder, output, twice=is_twice)
