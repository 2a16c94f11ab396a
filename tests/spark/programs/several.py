"""Three queries: `clean` fills a channel, `copy` commits what comes through it, `plain` reads as `clean` does.

Options, as `name=value`: with `dies=<moment>:<query>` the driver is killed before it starts that query, at its launch
when it was announced, or after its first batch; `more=first|last|channel` starts a query that the program did not have
before, and `more=append` one whose sink nobody knows; `refused=<query>` asks of that query what Spark does not do;
`waits=<query>` does not start that one while there is a file `<out>/wait`; `unsaid=yes` does not say what `copy` reads,
and `unknown=yes` says of a query that it reads what nobody writes.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from airflow_provider_ckpt.spark import CheckpointAgent, agent
from airflow_provider_ckpt.spark.sinks import FilesSink

SCHEMA = "k int, v int, u int, t timestamp"


class Program:
    def __init__(self, spark: SparkSession, ckpt: CheckpointAgent, out: Path, options: dict[str, str]) -> None:
        self.spark = spark
        self.ckpt = ckpt
        self.out = out
        self.options = options
        self.moment, _, self.dying = options.get("dies", "never:").partition(":")

    def run(self, source: str) -> None:
        rows = self.read("json", source)
        more = self.options.get("more")
        if more == "first":
            self.start("more", bounded(rows), sink=self.files("more"))
        self.start("clean", bounded(rows).format("parquet"), writes="rows")
        through = self.read("parquet", self.ckpt.channel("rows"))
        says = {} if self.options.get("unsaid") else {"reads": "rows"}
        self.start("copy", bounded(through), sink=self.files("copy"), **says)
        knows = {"reads": "nowhere"} if self.options.get("unknown") else {}
        self.start("plain", bounded(rows), sink=self.files("plain"), **knows)
        if more == "last":
            self.start("more", bounded(rows), sink=self.files("more"))
        if more == "channel":
            self.start("more", bounded(through), reads="rows", sink=self.files("more"))
        if more == "append":
            self.start("more", bounded(rows).foreachBatch(look_at))
        self.ckpt.await_termination()

    def read(self, kind: str, path: str) -> DataFrame:
        return self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).format(kind).load(path)

    def files(self, name: str) -> FilesSink:
        return FilesSink(f"{self.out}/{name}")

    def start(self, name: str, writer: DataStreamWriter, **more: Any) -> None:
        while self.options.get("waits") == name and (self.out / "wait").exists():
            time.sleep(0.1)
        if self.options.get("refused") == name:
            writer = writer.trigger(continuous="1 second")
        if self.dying != name:
            self.ckpt.start(name, writer, **more)
            return
        if self.moment == "before":
            die()
        with patch.object(agent, "_launch", side_effect=die if self.moment == "launch" else die_after(agent._launch)):
            self.ckpt.start(name, writer, **more)


def bounded(rows: DataFrame) -> DataStreamWriter:
    return rows.writeStream.trigger(availableNow=True)


def look_at(batch: DataFrame, _: int) -> None:
    batch.count()


def die_after(launch: Callable[[str, DataStreamWriter], StreamingQuery]) -> Callable[[str, DataStreamWriter], None]:
    def run(name: str, writer: DataStreamWriter) -> None:
        query = launch(name, writer)
        while query.lastProgress is None:
            time.sleep(0.05)
        die()

    return run


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main(source: str, out: str, *given: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    with CheckpointAgent.from_conf(spark) as ckpt:
        Program(spark, ckpt, Path(out), dict(each.split("=", 1) for each in given)).run(source)


if __name__ == "__main__":
    main(*sys.argv[1:])
