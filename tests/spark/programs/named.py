"""Totals over sources with names, and a sink with one: what Spark calls the evolution of queries.

`named.py <source> <out> <version of the offset log> <name>:<kind>,…`: each source reads `<source>/<name>`.
"""

import json
import sys
import time
from functools import reduce
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from airflow_provider_ckpt.spark import CheckpointAgent

EVOLUTION = "spark.sql.streaming.queryEvolution"


def main(source: str, out: Path, version: str, named: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    for key, value in (
        (f"{EVOLUTION}.enableSourceEvolution", "true"),
        (f"{EVOLUTION}.enableSinkEvolution", "true"),
        ("spark.sql.streaming.offsetLog.formatVersion", version),
    ):
        spark.conf.set(key, value)
    with CheckpointAgent.from_conf(spark) as ckpt:
        sources = [_read(spark, source, *each.split(":")) for each in named.split(",")]
        totals = reduce(DataFrame.unionAll, sources).groupBy("k").agg(F.sum("v").alias("s"))
        writer = totals.writeStream.outputMode("update").foreachBatch(_write(out)).trigger(availableNow=True)
        writer._jwrite = writer._jwrite.name("totals")  # Python has no word for it yet
        ckpt.start("totals", writer, is_rewindable=True)
        ckpt.await_termination()


def _read(spark: SparkSession, folder: str, name: str, kind: str) -> DataFrame:
    reader = spark.readStream.schema("k int, v int, u int, t timestamp").option("maxFilesPerTrigger", 1)
    return reader.name(name).format(kind).load(f"{folder}/{name}")


def _write(out: Path):  # type: ignore[no-untyped-def]
    """The newest total of each key; no batch after the second ends while there is a file `hold`."""

    def write(batch: DataFrame, number: int) -> None:
        while number >= 2 and (out / "hold").exists():
            time.sleep(0.05)
        file = out / "totals.json"
        known = json.loads(file.read_text()) if file.exists() else {}
        file.write_text(json.dumps({**known, **{str(row.k): row.s for row in batch.collect()}}))

    return write


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
