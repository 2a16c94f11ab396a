"""Stages on real databases for tests with real Spark."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.spark.stage import Stage


@pytest.fixture
def stage(tmp_path: Path, new_database: Callable[[str], str]) -> Iterator[Stage]:
    stage = Stage(folder=tmp_path, url=new_database("sqlite"), storage_url=str(tmp_path / "storage"))
    yield stage
    stage.close()
