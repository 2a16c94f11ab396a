"""A query that the program starts itself, and that has ended before the agent looks for it; run by tests."""

import sys

from pyspark.sql import SparkSession

from airflow_provider_ckpt.spark import CheckpointAgent


def main(source: str, *given: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    with CheckpointAgent.from_conf(spark) as ckpt:
        rows = spark.readStream.schema("k int, v int").json(source)
        if "fails" in given:
            rows = rows.selectExpr("raise_error('it is so') AS k")
        writer = rows.writeStream.format("noop").trigger(availableNow=True).queryName("seen")
        with ckpt._queries._lock:  # nobody looks meanwhile
            query = writer.option("checkpointLocation", ckpt.location("seen", is_rewindable=True)).start()
            while query.isActive:
                pass
        ckpt.await_termination()


if __name__ == "__main__":
    main(*sys.argv[1:])
