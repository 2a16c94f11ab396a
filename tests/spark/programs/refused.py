"""Tries what is refused, one after the other, in one driver, and prints what it is told."""

import os
import sys
from collections.abc import Callable
from contextlib import closing
from unittest.mock import patch

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from airflow_provider_ckpt.metastore import open_metastore
from airflow_provider_ckpt.protocol.errors import CkptError
from airflow_provider_ckpt.spark import CheckpointAgent, agent
from airflow_provider_ckpt.spark.sinks import FilesSink


def main(source: str, out: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    spark.conf.set("spark.ckpt.poll", "never")  # as a notebook does, which has a session already
    _try("session", lambda: CheckpointAgent.from_conf(spark))
    spark.conf.unset("spark.ckpt.poll")
    with CheckpointAgent.from_conf(spark) as ckpt:
        rows = spark.readStream.schema("k int, v int").json(source)
        rate = spark.readStream.format("rate").load().writeStream.format("console")
        _try("continuous", lambda: ckpt.start("rate", rate.trigger(continuous="1 second")))
        own = rows.writeStream.format("parquet").option("path", f"{out}/own")
        _try("own path", lambda: ckpt.start("own", own, is_rewindable=True))
        files = rows.writeStream.format("parquet")
        _try("bad folder", lambda: ckpt.start("odd", rows.writeStream, sink=FilesSink(f"{out}/a b")))
        _try("two sinks", lambda: ckpt.start("two", files, writes="ab", sink=FilesSink(f"{out}/x")))
        _try("bad name", lambda: ckpt.start("../up", files))
        whole = rows.groupBy("k").count().writeStream.outputMode("complete")
        _try("whole result", lambda: ckpt.start("whole", whole, sink=FilesSink(f"{out}/whole")))
        print(f"declared after those: {_declared()}", flush=True)
        with patch.object(agent, "_launch", side_effect=_launch):
            ckpt.start("fine", files, writes="ab")
        _try("two writers", lambda: ckpt.start("other", files, writes="ab"))
        _try("same name", lambda: ckpt.start("fine", rows.writeStream.format("noop")))


def _launch(name: str, writer: DataStreamWriter) -> StreamingQuery:
    print(f"declared at launch: {_declared()}", flush=True)
    return writer.start()


def _declared() -> list[str]:
    """Which queries the store knows of."""
    with closing(open_metastore(os.environ["CKPT_METASTORE"])) as store:
        return [query.name for query in store.attempts.graph("orders", 1).queries]


def _try(what: str, call: Callable[[], object]) -> None:
    try:
        call()
    except CkptError as error:
        print(f"{what}: {type(error).__name__}: {error}", flush=True)
    else:
        print(f"{what}: nothing was said", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
