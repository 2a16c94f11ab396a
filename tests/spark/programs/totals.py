"""A small pipeline: running totals through foreachBatch, and a plain copy through a sink of files.

Options, as `name=value`: `trigger=now|fast|<seconds>`, `change=<what>` for a program that was changed since.
No batch above `gate` ends before the file `go` is there.
"""

import json
import logging
import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.readwriter import DataStreamWriter

from airflow_provider_ckpt.spark import CheckpointAgent
from airflow_provider_ckpt.spark.sinks import FilesSink

SCHEMA = "k int, v int, u int, t timestamp"


def main(source: str, out: Path, options: dict[str, str]) -> None:
    spark = SparkSession.builder.getOrCreate()
    change = options.get("change", "")
    if change == "partitions":
        spark.conf.set("spark.sql.shuffle.partitions", "3")
    with CheckpointAgent.from_conf(spark) as ckpt:
        reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        if change == "clean":
            reader = reader.option("cleanSource", "delete")
        rows = reader.json(source) if change != "source" else reader.parquet(source)
        totals = rows.groupBy("k").agg(F.sum("v").alias("s"))
        if change == "operator":
            totals = rows.groupBy("k", "u").agg(F.sum("v").alias("s"))
        name = "sums" if change == "name" else "totals"
        ckpt.start(
            name, _by_batch(totals, out, options), is_rewindable={"yes": True}.get(options.get("rewindable", "yes"))
        )
        if options.get("copy", "yes") == "yes":
            ckpt.start("copy", _trigger(rows.writeStream, options), sink=FilesSink(f"{out}/copy"))
        ckpt.await_termination()


def _by_batch(rows: DataFrame, out: Path, options: dict[str, str]) -> DataStreamWriter:
    folder = out / "totals"
    folder.mkdir(parents=True, exist_ok=True)
    gate = int(options.get("gate", 1_000_000))

    def write(batch: DataFrame, number: int) -> None:
        lines = sorted(json.dumps(row.asDict()) for row in batch.collect())
        with (out / "runs").open("a") as runs:  # which batches were processed, however often
            runs.write(f"{number}\n")
        while number >= gate and not (out / "go").exists():
            time.sleep(0.05)
        partial = folder / f".{number}.{time.monotonic_ns()}"
        partial.write_text("\n".join(lines))
        partial.rename(folder / str(number))

    return _trigger(rows.writeStream.outputMode("update").foreachBatch(write), options)


def _trigger(writer: DataStreamWriter, options: dict[str, str]) -> DataStreamWriter:
    match options.get("trigger", "now"):
        case "now":
            return writer.trigger(availableNow=True)
        case "fast":
            return writer.trigger(processingTime="200 milliseconds")
        case "continuous":
            return writer.trigger(continuous="1 second")
        case seconds:
            return writer.trigger(processingTime=f"{seconds} seconds")


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("py4j").setLevel(logging.ERROR)
    input_folder, output_folder, *given = sys.argv[1:]
    main(input_folder, Path(output_folder), dict(each.split("=", 1) for each in given))
