"""A plain copy through an output; with `dies`, its driver is killed after a batch, before it says what its query is."""

import os
import signal
import sys
import time
from pathlib import Path
from unittest.mock import patch

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from airflow_provider_ckpt.spark import CheckpointAgent, agent


def main(source: str, out: str, *options: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    with CheckpointAgent.from_conf(spark) as ckpt:
        rows = spark.readStream.schema("k int, v int").option("maxFilesPerTrigger", 1).json(source)
        writer = rows.writeStream.format("parquet").trigger(availableNow=True)
        with patch.object(agent, "_judge_sink", side_effect=_die if "dies" in options else agent._judge_sink):
            ckpt.start("copy", writer, output=Path(out) / "copy")
        ckpt.await_termination()


def _die(name: str, query: StreamingQuery, **given: object) -> None:
    while query.lastProgress is None:
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
