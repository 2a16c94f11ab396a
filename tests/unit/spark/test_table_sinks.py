"""Sinks of files and tables without Spark: the conformance kit, and what a table may hold that we do not write."""

import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from airflow_provider_ckpt.spark.sinks import DeltaSink, FilesSink, IcebergSink, Sink
from airflow_provider_ckpt.testing.conformance import find_faults
from tests import frames

LANDING = "airflow_provider_ckpt.spark.sinks.landing"


class _Subject:
    is_atomic = True

    def rows(self, numbers: Sequence[int]) -> Any:
        return frames.numbers(numbers)


class Files(_Subject):
    is_atomic = False

    def __init__(self, folder: Path) -> None:
        self._path = folder / uuid.uuid4().hex

    def open(self) -> Sink:
        return FilesSink(str(self._path))

    def read(self) -> list[int]:
        files = [str(file) for file in self._path.glob("*.parquet")]
        return [row["n"] for row in ds.dataset(files).to_table().to_pylist()] if files else []


class Delta(_Subject):
    def __init__(self, folder: Path) -> None:
        self.path = str(folder / uuid.uuid4().hex)

    def open(self) -> Sink:
        return DeltaSink(self.path)

    def read(self) -> list[int]:
        if not DeltaTable.is_deltatable(self.path):
            return []
        return [row["n"] for row in DeltaTable(self.path).to_pyarrow_table().to_pylist()]


class Iceberg(_Subject):
    def __init__(self, folder: Path) -> None:
        home = folder / uuid.uuid4().hex
        home.mkdir(parents=True)
        self.properties = {"type": "sql", "uri": f"sqlite:///{home}/catalog.db", "warehouse": f"file://{home}/lake"}

    def open(self) -> Sink:
        return IcebergSink("lake.rows", catalog="lake", properties=self.properties)

    def load(self) -> Any:
        return load_catalog("lake", **self.properties).load_table("lake.rows")

    def read(self) -> list[int]:
        if not load_catalog("lake", **self.properties).table_exists("lake.rows"):
            return []
        return [row["n"] for row in self.load().scan().to_arrow().to_pylist()]


@pytest.mark.parametrize("subject", [Files, Delta, Iceberg])
def test_sinks_of_files_and_tables_pass_the_conformance_kit(
    subject: Callable[[Path], Files | Delta | Iceberg], tmp_path: Path
) -> None:
    """Before every thirteenth line; tests/spark comes to all of them."""
    assert find_faults(lambda: subject(tmp_path), tmp_path / "scratch", [LANDING], lines=range(0, 2000, 13)) == []
