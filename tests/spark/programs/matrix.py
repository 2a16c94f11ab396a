"""Every kind of stateful operator on every state store, as one pipeline; run by tests in a process of its own.

Every batch reads one file, so that batches are the same in every run; what a batch gives is written under its number.
No query goes beyond batch 2 before the file `go` is there: a checkpoint before that finds all of them at work.
"""

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.streaming.state import GroupStateTimeout
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from airflow_provider_ckpt.spark import CheckpointAgent

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
STORES: dict[str, dict[str, str]] = {
    "hdfs": {},
    "rocksdb": {PROVIDER: ROCKSDB},
    "changelog": {PROVIDER: ROCKSDB, CHANGELOG: "true"},
    "format2": {PROVIDER: ROCKSDB, CHANGELOG: "true", FORMAT: "2"},
}


class _Sums(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self._sum = handle.getValueState("sum", "sum long")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        total = (self._sum.get() or (0,))[0] if self._sum.exists() else 0
        for each in rows:
            total += int(each.v.sum()) if isinstance(each, pd.DataFrame) else each.v
        self._sum.update((total,))
        yield self.row(key[0], total)

    def row(self, key: int, total: int) -> Any:
        return Row(k=key, s=total)

    def close(self) -> None:
        pass


class _PandasSums(_Sums):
    def row(self, key: int, total: int) -> Any:
        return pd.DataFrame({"k": [key], "s": [total]})


def _sums(key: Any, frames: Iterable[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    total = (state.get[0] if state.exists else 0) + sum(int(frame.v.sum()) for frame in frames)
    state.update((total,))
    yield pd.DataFrame({"k": [key[0]], "s": [total]})


def aggregation(rows: DataFrame, _: DataFrame) -> DataFrame:
    return rows.groupBy("k").agg(F.sum("v").alias("s"), F.count("*").alias("n"))


def keyless(rows: DataFrame, _: DataFrame) -> DataFrame:
    return rows.groupBy().agg(F.sum("v").alias("s"), F.count("*").alias("n"))


def limit(rows: DataFrame, _: DataFrame) -> DataFrame:
    return rows.select("k", "v").limit(130)


def window(rows: DataFrame, _: DataFrame) -> DataFrame:
    return rows.withWatermark("t", "20 seconds").groupBy(F.window("t", "30 seconds"), "k").agg(F.sum("v").alias("s"))


def session(rows: DataFrame, _: DataFrame) -> DataFrame:
    spread = rows.where("u < 20").withWatermark("t", "5 seconds")
    return spread.groupBy(F.session_window("t", "3 seconds"), "k").agg(F.sum("v").alias("s"))


def chained(rows: DataFrame, _: DataFrame) -> DataFrame:
    small = rows.withWatermark("t", "5 seconds").groupBy(F.window("t", "5 seconds"), "k").agg(F.sum("v").alias("s"))
    return small.groupBy(F.window("window", "15 seconds"), "k").agg(F.sum("s").alias("s"))


def duplicates(rows: DataFrame, _: DataFrame) -> DataFrame:
    return rows.withWatermark("t", "10 minutes").dropDuplicates(["k", "u"]).select("k", "u")


def duplicates_for_ever(rows: DataFrame, _: DataFrame) -> DataFrame:
    return rows.select("u").distinct()


def duplicates_within(rows: DataFrame, _: DataFrame) -> DataFrame:
    return rows.withWatermark("t", "20 seconds").dropDuplicatesWithinWatermark(["k", "u"]).select("k", "u")


def join(rows: DataFrame, others: DataFrame) -> DataFrame:
    return _joined(rows, others, "inner", "5 minutes")


def outer_join(rows: DataFrame, others: DataFrame) -> DataFrame:
    return _joined(rows, others.where("u < 30"), "leftOuter", "10 seconds")


def _joined(rows: DataFrame, others: DataFrame, kind: str, span: str) -> DataFrame:
    left = rows.withWatermark("t", span).alias("a")
    right = others.withWatermark("t", span).alias("b")
    on = F.expr(f"a.k = b.k and a.v = b.v + 100 and b.t between a.t - interval {span} and a.t + interval {span}")
    return left.join(right, on, kind).select("a.k", "a.v", F.col("b.v").alias("w"))


def pandas_state(rows: DataFrame, _: DataFrame) -> DataFrame:
    grouped = rows.groupBy("k")
    return grouped.applyInPandasWithState(_sums, "k int, s long", "s long", "update", GroupStateTimeout.NoTimeout)


def processor(rows: DataFrame, _: DataFrame) -> DataFrame:
    return rows.groupBy("k").transformWithState(_Sums(), "k int, s long", "Update", "None")


def pandas_processor(rows: DataFrame, _: DataFrame) -> DataFrame:
    return rows.groupBy("k").transformWithStateInPandas(_PandasSums(), "k int, s long", "Update", "None")


GATE = 3
Operator = Callable[[DataFrame, DataFrame], DataFrame]
CASES: dict[str, tuple[Operator, str, str]] = {
    f"{operator.__name__}-{store}": (operator, store, mode)
    for mode, operators, stores in (
        ("update", (aggregation, keyless, pandas_state), STORES),
        ("update", (processor, pandas_processor), [store for store in STORES if store != "hdfs"]),  # as Spark demands
        ("append", (join, outer_join, limit, window, session, chained), STORES),
        ("append", (duplicates, duplicates_for_ever, duplicates_within), STORES),
    )
    for operator in operators
    for store in stores
}


def main(source: str, out: str, *names: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    with CheckpointAgent.from_conf(spark) as ckpt:
        for name in names:
            operator, store, mode = CASES[name]
            for key, value in STORES[store].items():
                spark.conf.set(key, value)
            result = operator(_read(spark, source), _read(spark, source))
            ckpt.start(name, _write(result, mode, Path(out) / name), is_rewindable=True)
            for key in STORES[store]:
                spark.conf.unset(key)
        ckpt.await_termination()


def _read(spark: SparkSession, source: str) -> DataFrame:
    reader = spark.readStream.schema("k int, v int, u int, t timestamp").option("maxFilesPerTrigger", 1)
    return reader.json(source)


def _write(rows: DataFrame, mode: str, folder: Path) -> DataStreamWriter:
    folder.mkdir(parents=True, exist_ok=True)

    def write(batch: DataFrame, number: int) -> None:
        while number >= GATE and not (folder.parent / "go").exists():
            time.sleep(0.05)
        lines = sorted(json.dumps(row.asDict(recursive=True), default=str, sort_keys=True) for row in batch.collect())
        partial = folder / f".{number}.{time.monotonic_ns()}"
        partial.write_text("\n".join(lines))
        partial.rename(folder / str(number))

    return rows.writeStream.outputMode(mode).foreachBatch(write).trigger(availableNow=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
