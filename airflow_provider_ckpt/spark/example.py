"""The example pipeline: orders are cleaned by one query, counted by a second and published by a third.

::

    ckpt init orders
    spark-submit --conf spark.ckpt.pipeline=orders …/airflow_provider_ckpt/spark/example.py /data/orders /data/out

`clean` hands what it keeps to the others through a channel; `totals` keeps running totals, written to
`<out>/totals.json`; `published` writes every order to the Delta table `<out>/published`, exactly once.
"""

import json
import logging
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from airflow_provider_ckpt.spark import CheckpointAgent
from airflow_provider_ckpt.spark.sinks import DeltaSink

SCHEMA = "id long, shop int, amount long"


def main(source: str, out: str) -> None:
    spark = SparkSession.builder.appName("orders").getOrCreate()
    with CheckpointAgent.from_conf(spark) as ckpt:
        orders = spark.readStream.schema(SCHEMA).json(source)
        clean = orders.where("amount >= 0").writeStream.format("json").trigger(processingTime="500 milliseconds")
        ckpt.start("clean", clean, writes="clean")

        cleaned = spark.readStream.schema(SCHEMA).json(ckpt.channel("clean"))
        totals = cleaned.groupBy("shop").agg(sql.sum("amount").alias("amount"), sql.count("*").alias("orders"))
        upsert = totals.writeStream.outputMode("complete").foreachBatch(_keep(Path(out) / "totals.json"))
        ckpt.start("totals", upsert.trigger(processingTime="1 second"), reads="clean", is_rewindable=True)

        published = cleaned.writeStream.trigger(processingTime="1 second")
        ckpt.start("published", published, reads="clean", sink=DeltaSink(f"{out}/published"))
        ckpt.await_termination()


def _keep(file: Path):  # type: ignore[no-untyped-def]
    """Replace the whole table: keyed by data, so rows that come again do no harm."""

    def write(batch: DataFrame, _: int) -> None:
        partial = file.with_suffix(".partial")
        partial.write_text(json.dumps({row.shop: [row.orders, row.amount] for row in batch.collect()}, sort_keys=True))
        partial.replace(file)

    return write


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("airflow_provider_ckpt").setLevel(logging.INFO)
    main(*sys.argv[1:])
