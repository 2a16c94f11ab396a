"""Two sinks of files, plain and in partitions, and what Spark reads from their folders before and after the run.

With `dies=yes` the driver is killed when both queries have staged a batch and nothing is committed.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from airflow_provider_ckpt.spark import CheckpointAgent
from airflow_provider_ckpt.spark.sinks import FilesSink

SCHEMA = "k int, v int, u int, t timestamp"
FOLDERS = ("plain", "parts")


def main(source: str, out: Path, dies: str = "no") -> None:
    spark = SparkSession.builder.getOrCreate()
    tell(spark, out, "before")
    with CheckpointAgent.from_conf(spark) as ckpt:
        rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(source)
        writer = rows.writeStream.trigger(availableNow=True)
        queries = [
            ckpt.start("plain", writer, sink=FilesSink(f"{out}/plain")),
            ckpt.start("parts", writer, sink=FilesSink(f"{out}/parts", partition_by=["k"])),
        ]
        if dies == "yes":
            while any(query.lastProgress is None for query in queries):
                time.sleep(0.05)
            os.kill(os.getpid(), signal.SIGKILL)
        ckpt.await_termination()
    tell(spark, out, "after")


def tell(spark: SparkSession, out: Path, when: str) -> None:
    """What a user's own program would read, in every way that Spark has."""
    found = {}
    for folder in FOLDERS:
        if (out / folder).exists():
            path = f"{out}/{folder}"
            found[f"{folder} by read"] = counted(spark.read.parquet(path))
            found[f"{folder} by read with a schema"] = counted(spark.read.schema(SCHEMA).format("parquet").load(path))
            found[f"{folder} by readStream"] = counted(streamed(spark, path))
    (out / f"{when}.json").write_text(json.dumps(found))


def streamed(spark: SparkSession, path: str) -> DataFrame:
    name = f"seen{time.monotonic_ns()}"
    rows = spark.readStream.schema(SCHEMA).parquet(path)
    rows.writeStream.format("memory").queryName(name).trigger(availableNow=True).start().awaitTermination()
    return spark.table(name)


def counted(rows: DataFrame) -> list[list[int]]:
    return sorted([row.k, row.v] for row in rows.select("k", "v").collect())


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
