"""The example pipeline: orders are cleaned by one query, counted by a second and published by a third.

::

    ckpt init orders
    spark-submit --conf spark.ckpt.pipeline=orders …/airflow_provider_ckpt/spark/example.py /data/orders /data/out

`clean` hands what it keeps to the others through a channel; `totals` keeps running totals, written to
`<out>/totals.json`; `published` writes every order to the Delta table `<out>/published`, exactly once.
"""

import fcntl
import json
import logging
import sys
from collections.abc import Callable
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
        upsert = totals.writeStream.outputMode("complete").foreachBatch(keep(Path(out) / "totals.json", ckpt.attempt))
        ckpt.start("totals", upsert.trigger(processingTime="1 second"), reads="clean", is_rewindable=True)

        published = cleaned.writeStream.trigger(processingTime="1 second")
        ckpt.start("published", published, reads="clean", sink=DeltaSink(f"{out}/published"))
        ckpt.await_termination()


def keep(file: Path, attempt: int | None) -> Callable[[DataFrame, int], None]:
    """Replace the whole table: keyed by data, so rows that come again do no harm.

    The attempt's number is the fencing token. A driver that slept in the middle of this, and was replaced, would put
    an old table over a newer one: so the number is kept beside the table, and an older one is refused.
    """

    def write(batch: DataFrame, _: int) -> None:
        table = json.dumps({row.shop: [row.orders, row.amount] for row in batch.collect()}, sort_keys=True)
        with file.with_suffix(".attempt").open("a+") as token:
            fcntl.flock(token, fcntl.LOCK_EX)  # held until the table is replaced
            token.seek(0)
            if (newest := int(token.read() or 0)) > (attempt or 0):
                raise RuntimeError(f"attempt {newest} has written {file}: attempt {attempt} may not")
            token.truncate(0)
            token.write(str(attempt or 0))
            token.flush()
            partial = file.with_suffix(".partial")
            partial.write_text(table)
            partial.replace(file)

    return write


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("airflow_provider_ckpt").setLevel(logging.INFO)
    main(*sys.argv[1:])
