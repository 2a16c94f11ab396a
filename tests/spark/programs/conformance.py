"""Puts the sinks that we ship through the conformance kit, with real Spark; writes what is wrong with each as JSON.

It tries the sinks that are named, those on S3 in some ways only: a crash at every line takes minutes there. `lines`
says before which lines they crash: `2:6` is every sixth one.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from uuid import uuid4

import psycopg
import pyarrow.dataset as ds
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import PrimitiveType
from pyiceberg.catalog import load_catalog
from pyspark.sql import DataFrame, SparkSession

from airflow_provider_ckpt.protocol.errors import Refused
from airflow_provider_ckpt.protocol.records import Ref
from airflow_provider_ckpt.spark import sinks
from airflow_provider_ckpt.storage.opening import open_storage
from airflow_provider_ckpt.testing import conformance
from airflow_provider_ckpt.testing.conformance import CHECKS, Subject

SPARK = SparkSession.builder.getOrCreate()
LANDING = "airflow_provider_ckpt.spark.sinks.landing"
TABLES = "airflow_provider_ckpt.spark.sinks.postgres_tables"
FILES_LOG = "airflow_provider_ckpt.spark.sinks.files_log"
S3_LANDING = "airflow_provider_ckpt.spark.sinks.s3_landing"
HDFS_LANDING = "airflow_provider_ckpt.spark.sinks.hdfs_landing"


class _Subject:
    is_atomic = True

    def rows(self, numbers: Sequence[int]) -> DataFrame:
        values = ", ".join(f"({number}L)" for number in numbers or [-1])
        return SPARK.sql(f"SELECT * FROM VALUES {values} AS numbers(n) WHERE n >= 0").coalesce(1)


class Files(_Subject):
    is_atomic = False

    def __init__(self, folder: Path, form: str = "parquet") -> None:
        self._path = folder / uuid4().hex
        self._form = form

    def open(self) -> sinks.Sink:
        return sinks.FilesSink(str(self._path), format=self._form)

    def read(self) -> list[int]:
        files = [str(file) for file in self._path.glob(f"*.{self._form}")]
        rows = ds.dataset(files, format=self._form).to_table().to_pylist() if files else []
        return [row["n"] for row in rows]


class FilesElsewhere(_Subject):
    is_atomic = False

    def __init__(self, url: str) -> None:
        self._url = url.replace("?", f"/{uuid4().hex}?")

    def open(self) -> sinks.Sink:
        return sinks.FilesSink(self._url, format="json")

    def read(self) -> list[int]:
        storage = open_storage(self._url)
        files = [storage.read(file.path) for file in storage.list("") if not file.path.startswith(".ckpt")]
        return [json.loads(line)["n"] for data in files for line in data.splitlines()]


class S3Delta(_Subject):
    def __init__(self, url: str) -> None:
        self._url = url.replace("?", f"/{uuid4().hex}?")
        endpoint = dict(parse_qsl(urlsplit(url).query))["endpoint"]
        self._options = {"AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1"}

    def open(self) -> sinks.Sink:
        return sinks.DeltaSink(self._url)

    def read(self) -> list[int]:
        path = self._url.partition("?")[0]
        if not DeltaTable.is_deltatable(path, self._options):
            return []
        return [row["n"] for row in DeltaTable(path, storage_options=self._options).to_pyarrow_table().to_pylist()]


class Delta(_Subject):
    def __init__(self, folder: Path) -> None:
        self._path = str(folder / uuid4().hex)

    def open(self) -> sinks.Sink:
        return sinks.DeltaSink(self._path)

    def read(self) -> list[int]:
        if not DeltaTable.is_deltatable(self._path):
            return []
        return [row["n"] for row in DeltaTable(self._path).to_pyarrow_table().to_pylist()]


class Iceberg(_Subject):
    def __init__(self, folder: Path, warehouse: str | None = None, **properties: str) -> None:
        home = folder / uuid4().hex
        home.mkdir(parents=True)
        where = f"file://{home}/lake" if warehouse is None else f"{warehouse}/{home.name}"
        self._properties = {"type": "sql", "uri": f"sqlite:///{home}/catalog.db", "warehouse": where, **properties}

    def open(self) -> sinks.Sink:
        return sinks.IcebergSink("lake.numbers", catalog="lake", properties=self._properties)

    def read(self) -> list[int]:
        catalog: Any = load_catalog("lake", **self._properties)
        if not catalog.table_exists("lake.numbers"):
            return []
        return [row["n"] for row in catalog.load_table("lake.numbers").scan().to_arrow().to_pylist()]


def s3_iceberg(folder: Path, url: str) -> Iceberg:
    settings = dict(parse_qsl(urlsplit(url).query))
    given = {"s3.endpoint": settings["endpoint"], "s3.region": settings["region"]}
    return Iceberg(folder, url.partition("?")[0], **given)


class Postgres(_Subject):
    def __init__(self, folder: Path) -> None:
        self._url = os.environ["ROWS_DATABASE"]
        self._table = f"numbers_{uuid4().hex[:8]}"
        with psycopg.connect(self._url) as connection:
            connection.execute(f"CREATE TABLE {self._table} (n bigint)".encode())

    def open(self) -> sinks.Sink:
        return sinks.PostgresSink(self._table, url=self._url)

    def read(self) -> list[int]:
        with psycopg.connect(self._url) as connection:
            return [row[0] for row in connection.execute(f"SELECT n FROM {self._table}".encode()).fetchall()]


ODD = ["", " ", "a,b", 'say "so"', "two\nlines", "back\\slash", "Straße 北京", "\\N", "null", "100%", "k=v/w", None]


def _slot(folder: Path, batch: int) -> sinks.Slot:
    name = sinks.Name(pipeline="odd", sink="query/sink")
    return sinks.Slot(name=name, attempt=1, batch=batch, run=uuid4().hex, scratch=folder / uuid4().hex)


def _publish(sink: sinks.Sink, folder: Path, *batches: DataFrame) -> None:
    staged = [sink.stage(rows, _slot(folder, number)).document for number, rows in enumerate(batches)]
    slot = _slot(folder, 0)
    ref, prepared = Ref("odd", 1), sink.prepare(staged)
    sink.commit(sinks.Publication(ref=ref, name=slot.name, attempt=1, after=None, staged=prepared))


def odd_values_in_postgres(folder: Path) -> list[str]:
    """Whatever a text holds, times to the microsecond, bytes and lists come out as they went in."""
    url, table = os.environ["ROWS_DATABASE"], f"odd_{uuid4().hex[:8]}"
    moment = datetime(2026, 3, 29, 1, 30, 0, 123456, tzinfo=UTC)
    with psycopg.connect(url) as connection:
        connection.execute(f"CREATE TABLE {table} (n int, s text, t timestamptz, b bytea, x float8, l jsonb)".encode())
    rows = [(n, text, moment, b"\x00\xff" if n else None, 1e300 / (n + 1), [n]) for n, text in enumerate(ODD)]
    _publish(
        sinks.PostgresSink(table, url=url),
        folder,
        SPARK.createDataFrame(rows, "n int, s string, t timestamp, b binary, x double, l array<int>"),
    )
    with psycopg.connect(url) as connection:
        found = connection.execute(f"SELECT * FROM {table} ORDER BY n".encode()).fetchall()
    return [f"{came} is not {went}" for went, came in zip(rows, found, strict=True) if went != came]


def an_upsert_keeps_the_newest_of_each_key(folder: Path) -> list[str]:
    url, table = os.environ["ROWS_DATABASE"], f"upsert_{uuid4().hex[:8]}"
    with psycopg.connect(url) as connection:
        connection.execute(f"CREATE TABLE {table} (k int PRIMARY KEY, v int)".encode())
        connection.execute(f"INSERT INTO {table} VALUES (1, 0), (9, 9)".encode())
    batches = [SPARK.createDataFrame(rows, "k int, v int") for rows in ([(1, 1), (2, 1)], [(2, 2), (3, 2)])]
    _publish(sinks.PostgresSink(table, url=url, key=["k"]), folder, *batches)
    with psycopg.connect(url) as connection:
        found = connection.execute(f"SELECT k, v FROM {table} ORDER BY k".encode()).fetchall()
    return [] if found == [(1, 1), (2, 2), (3, 2), (9, 9)] else [str(found)]


def odd_partitions_in_delta(folder: Path) -> list[str]:
    """Partitions are found by their values, others write as well, and new columns are added when that is wanted."""
    path = str(folder / uuid4().hex)
    texts = [text for text in ODD if text not in ("",)]  # Hive, and so Spark, takes an empty partition for none
    first = SPARK.createDataFrame([(n, text) for n, text in enumerate(texts)], "n int, s string")
    _publish(sinks.DeltaSink(path, partition_by=["s"]), folder, first)
    found = {(row["n"], row["s"]) for row in DeltaTable(path).to_pyarrow_table().to_pylist()}
    faults = [f"{row} is missing" for row in enumerate(texts) if row not in found]
    sink = sinks.DeltaSink(path, evolve=True)
    sink.stage(SPARK.createDataFrame([(1, "x", 2)], "n int, s string, more int"), _slot(folder, 7))
    if "more" not in [field.name for field in DeltaTable(path).schema().fields]:
        faults.append("a new column was not added")
    try:
        sinks.DeltaSink(path).stage(SPARK.createDataFrame([(1, "x", 2)], "n int, s string, yet int"), _slot(folder, 8))
        faults.append("a new column was not refused")
    except Refused:
        pass
    return faults


def rules_of_a_delta_table(folder: Path) -> list[str]:
    """NOT NULL and CHECK hold for what we write; a batch that breaks one fails, and nothing of it is left."""
    path = str(folder / uuid4().hex)
    columns = [("k", False), ("odd `name`", True), ("v", True)]
    fields = [Field(name, PrimitiveType("long"), nullable=nullable) for name, nullable in columns]
    table = DeltaTable.create(path, Schema(fields))
    table.alter.add_constraint({"positive": "v > 0"})

    def stage(batch: int, rows: str) -> str:
        frame = SPARK.sql(f"SELECT k, `odd ``name```, v FROM VALUES {rows} AS r(k, `odd ``name```, v)")
        try:
            sinks.DeltaSink(path).stage(frame, _slot(folder, batch))
        except Exception as error:
            return str(error)
        return ""

    wanted = {
        "(1L, NULL, 1L), (2L, 2L, 2L)": "",
        "(1L, 1L, 1L), (NULL, 1L, 1L)": f"A row breaks a rule of the Delta table {path}: column k is NOT NULL.",
        "(1L, 1L, 1L), (2L, 1L, 0L)": f"A row breaks a rule of the Delta table {path}: CHECK positive (v > 0).",
        "(1L, 1L, 1L), (2L, 1L, NULL)": f"A row breaks a rule of the Delta table {path}: CHECK positive (v > 0).",
    }
    said = {rows: stage(batch, rows) for batch, rows in enumerate(wanted)}
    return [
        f"{rows}: {said[rows][:300]!r}"
        for rows, why in wanted.items()
        if why not in said[rows] or (said[rows] and not why)
    ]


def partitions_and_times_in_iceberg(folder: Path) -> list[str]:
    home = folder / uuid4().hex
    home.mkdir(parents=True)
    properties = {"type": "sql", "uri": f"sqlite:///{home}/catalog.db", "warehouse": f"file://{home}/lake"}
    catalog: Any = load_catalog("lake", **properties)
    catalog.create_namespace("lake")
    moment = datetime(2026, 3, 29, 1, 30, 0, 123456, tzinfo=UTC)
    rows = [(n, f"day {n % 3}", moment) for n in range(9)]
    frame = SPARK.createDataFrame(rows, "n int, day string, t timestamp")
    table = catalog.create_table("lake.days", frame.limit(0).toArrow().schema)
    with table.update_spec() as update:
        update.add_identity("day")
    _publish(sinks.IcebergSink("lake.days", catalog="lake", properties=properties), folder, frame)
    found = catalog.load_table("lake.days").scan(row_filter="day = 'day 1'").to_arrow().to_pylist()
    wanted = [row for row in rows if row[1] == "day 1"]
    came = sorted((row["n"], row["day"], row["t"]) for row in found)
    return [] if came == wanted else [f"{came} is not {wanted}"]


EXTRAS = (
    odd_values_in_postgres,
    an_upsert_keeps_the_newest_of_each_key,
    odd_partitions_in_delta,
    rules_of_a_delta_table,
    partitions_and_times_in_iceberg,
)


SOME = (
    conformance.a_second_commit_changes_nothing,
    conformance.a_fenced_attempt_can_not_publish,
    conformance.what_nobody_adopts_is_discarded,
    conformance.a_roll_back_takes_back_what_came_after,
)
AT_ONCE = conformance.two_committers_at_once_publish_once  # for files it takes a minute: moto falls over, boto3 retries


def main(folder: Path, elsewhere: str, lines: range, named: Sequence[str]) -> None:
    subjects: dict[str, tuple[Callable[[], Subject], tuple[str, ...], tuple[conformance.Check, ...]]] = {
        "files": (lambda: Files(folder), (LANDING, FILES_LOG), CHECKS),
        "delta": (lambda: Delta(folder), (LANDING,), CHECKS),
        "iceberg": (lambda: Iceberg(folder), (LANDING,), CHECKS),
        "postgres": (lambda: Postgres(folder), (TABLES,), CHECKS),
        "files on S3": (lambda: FilesElsewhere(elsewhere), (S3_LANDING,), SOME),
        "delta on S3": (lambda: S3Delta(elsewhere), (S3_LANDING,), (*SOME, AT_ONCE)),
        "iceberg on S3": (lambda: s3_iceberg(folder, elsewhere), (S3_LANDING,), (*SOME, AT_ONCE)),
        "files on HDFS": (lambda: FilesElsewhere(elsewhere), (HDFS_LANDING, FILES_LOG), CHECKS),
    }
    faults = {extra.__name__: extra(folder) for extra in EXTRAS if extra.__name__ in named}
    for kind in (each for each in named if each in subjects):
        new_subject, also, checks = subjects[kind]
        began = time.monotonic()
        faults[kind] = conformance.find_faults(new_subject, folder / "scratch", also, checks, lines)
        print(f"{kind}: {time.monotonic() - began:.1f} s, {len(faults[kind])} faults", flush=True)
    (folder / "faults.json").write_text(json.dumps(faults))


if __name__ == "__main__":
    first, step = map(int, sys.argv[3].split(":"))
    main(Path(sys.argv[1]), sys.argv[2], range(first, 2000, step), sys.argv[4:])
