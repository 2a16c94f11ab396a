"""A running aggregation by foreachBatch and, if wanted, a deduplication into a sink of files; run by tests.

Both run until they are stopped. Every batch reads one file, so that batches are the same in every run.
"""

import json
import logging
import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from airflow_provider_ckpt.spark import CheckpointAgent
from airflow_provider_ckpt.spark.sinks import FilesSink

TRIGGER = "200 milliseconds"


def main(source: str, out: str, *others: str) -> None:
    logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    spark = SparkSession.builder.getOrCreate()
    with CheckpointAgent.from_conf(spark) as ckpt:
        _tell(spark, Path(out))
        totals = _read(spark, source).groupBy("k").agg(F.sum("v").alias("s"), F.count("*").alias("n"))
        writer = totals.writeStream.outputMode("update").foreachBatch(_Upsert(Path(out) / "totals"))
        ckpt.start("totals", writer.trigger(processingTime=TRIGGER), is_rewindable=True)
        if "unique" in others:
            unique = _read(spark, source).withWatermark("t", "1 hour").dropDuplicates(["k", "u"]).select("k", "u")
            files = FilesSink(f"{out}/unique", format="json")
            ckpt.start("unique", unique.writeStream.trigger(processingTime=TRIGGER), sink=files)
        ckpt.await_termination()


class _Upsert:
    """What a batch gives, under its number; while the file `hold` is there, a batch does not end."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder

    def __call__(self, batch: DataFrame, number: int) -> None:
        while (self._folder.parent / "hold").exists():
            time.sleep(0.05)
        lines = sorted(json.dumps(row.asDict(), sort_keys=True) for row in batch.collect())
        partial = self._folder / f".{number}.{time.monotonic_ns()}"
        partial.write_text("\n".join(lines))
        partial.rename(self._folder / str(number))


def _read(spark: SparkSession, source: str) -> DataFrame:
    reader = spark.readStream.schema("k int, v int, u int, t timestamp").option("maxFilesPerTrigger", 1)
    return reader.json(source)


def _tell(spark: SparkSession, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    context = spark.sparkContext
    document = {"id": context.applicationId, "ui": context.uiWebUrl}
    (out / "application.json").write_text(json.dumps(document))


if __name__ == "__main__":
    main(*sys.argv[1:])
