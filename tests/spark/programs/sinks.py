"""One pipeline with a query for each kind of sink, all from the same input, a file at a time; run by tests.

Options, as `name=value`: `sinks=files,delta,…`, `trigger=now|fast`, and `crash=<moment>:<sink>`: the process is gone,
as by kill -9, when that sink comes to that moment. While the file `fail-<sink>` is there, that sink's commits fail;
while `freeze-<sink>` is there they wait right before they would publish; while `freeze-batch` is there, batches that
are staged do not end.
"""

import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from pyspark.sql import SparkSession

from airflow_provider_ckpt.spark import CheckpointAgent
from airflow_provider_ckpt.spark.sinks import Sink
from airflow_provider_ckpt.spark.sinks.seat import Seat
from airflow_provider_ckpt.testing.faults import kill_this_process

HALF_A_FILE = 300  # bytes
SCHEMA = "k int, v int, u int, t timestamp"
MIDDLE = {  # what a sink does last before its target changes for readers
    "files": ("airflow_provider_ckpt.spark.sinks.landing", "LocalLanding", "_move"),
    "hdfs": ("airflow_provider_ckpt.spark.sinks.hdfs_landing", "HdfsLanding", "_move"),
    "delta": ("airflow_provider_ckpt.spark.sinks.delta", "DeltaSink", "_write"),
    "iceberg": ("airflow_provider_ckpt.spark.sinks.iceberg", "IcebergSink", "_write"),
    "postgres": ("airflow_provider_ckpt.spark.sinks.postgres_tables", "SinkTables", "note"),
}


def make(kind: str, out: Path) -> Sink:
    from airflow_provider_ckpt.spark import sinks  # noqa: PLC0415

    match kind:
        case "files":
            return sinks.FilesSink(str(out / "files"))
        case "hdfs":
            return sinks.FilesSink(os.environ["ROWS_ON_HDFS"])
        case "delta":
            return sinks.DeltaSink(str(out / "delta"), partition_by=["k"])
        case "iceberg":
            return sinks.IcebergSink("lake.rows", catalog="lake")
        case "postgres":
            return sinks.PostgresSink("rows", url_from="ROWS_DATABASE")
    raise ValueError(kind)


def main(source: str, out: Path, options: dict[str, str]) -> None:
    spark = SparkSession.builder.getOrCreate()
    spark.conf.set("spark.sql.files.maxPartitionBytes", HALF_A_FILE)  # a batch has several tasks, and several files
    kinds = options["sinks"].split(",")
    moment, _, crashing = options.get("crash", "none").partition(":")
    arm(moment, crashing, len(kinds))
    for kind in kinds:
        disturb(kind, out)
    _around(Seat, "__call__", after=lambda seat, *_: wait_at(out, "batch", seat.name.sink))
    with CheckpointAgent.from_conf(spark) as ckpt:
        rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(source).select("k", "v")
        for kind in kinds:
            writer = rows.writeStream
            if options.get("trigger", "fast") == "now":
                writer = writer.trigger(availableNow=True)
            else:
                writer = writer.trigger(processingTime="200 milliseconds")
            ckpt.start(kind, writer, sink=make(kind, out))
        ckpt.await_termination()


def _home(kind: str) -> tuple[Any, str]:
    module, name, middle = MIDDLE[kind]
    __import__(module)
    return getattr(sys.modules[module], name), middle


def disturb(kind: str, out: Path) -> None:
    """Commits fail or wait while a file says so."""
    home, middle = _home(kind)
    real = getattr(home, middle)

    def disturbed(*arguments: Any, **named: Any) -> Any:
        if (out / f"fail-{kind}").exists():
            raise OSError(f"the target of {kind} is out of order")
        wait_at(out, kind, kind)
        return real(*arguments, **named)

    setattr(home, middle, disturbed)


def wait_at(out: Path, gate: str, who: str) -> None:
    while (out / f"freeze-{gate}").exists():
        (out / f"frozen-{who.partition('/')[0]}").touch()
        time.sleep(0.05)


def arm(moment: str, kind: str, kinds: int) -> None:
    """Die when a sink of that kind comes to that moment; with `all`, when all of them have come there."""
    together = _Together(kinds if kind == "all" else 1)

    def come(seat: Seat) -> bool:
        return (kind == "all" or seat.name.sink.startswith(kind)) and together.come(seat.name.sink)

    if moment == "middle":
        home, middle = _home(kind)
        where = (
            "after" if kind in ("files", "hdfs") else "before"
        )  # one of several files is published, the marker is not
        _around(home, middle, **{where: lambda *_, **__: _is_committing() and _die()})
    elif moment in ("before-stage", "after-stage"):
        where = moment.partition("-")[0]
        _around(Seat, "__call__", **{where: lambda seat, *_: come(seat)})
    elif moment != "none":
        where, _, call = moment.partition("-")
        _around(Seat, {"prepare": "pledge"}.get(call, call), **{where: lambda seat, *_: come(seat)})


class _Together:
    """Dies when the last one has come. Queries wait where they are; the agent goes from sink to sink."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._came: set[str] = set()

    def come(self, who: str) -> bool:
        self._came.add(who)
        if len(self._came) == self._count:
            _die()
        while threading.current_thread().name != "ckpt-manager":
            time.sleep(0.05)
        return True


def _is_committing() -> bool:
    """Sinks write in `recover` as well."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code is not Seat.commit.__code__:
        frame = frame.f_back
    return frame is not None


def _die() -> bool:
    (Path(os.environ["CRASHES"]) / f"{time.time_ns()}").touch()
    return kill_this_process()


def _around(
    home: Any,
    name: str,
    before: Callable[..., object] = lambda *_: None,
    after: Callable[..., object] = lambda *_: None,
) -> None:
    real = getattr(home, name)

    def around(*arguments: Any, **named: Any) -> Any:
        before(*arguments, **named)
        result = real(*arguments, **named)
        after(*arguments, **named)
        return result

    setattr(home, name, around)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    for noisy in ("py4j", "pyiceberg", "botocore"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    input_folder, output_folder, *given = sys.argv[1:]
    main(input_folder, Path(output_folder), dict(each.split("=", 1) for each in given))
