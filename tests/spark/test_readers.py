"""What outside readers find in the folder of a sink of files: before and after a restart, and after a rewind."""

import json
import signal
from pathlib import Path

import duckdb
import pyarrow.dataset as ds
import pytest

from airflow_provider_ckpt.protocol.records import Rung
from tests.spark.stage import NAME, Stage, feed, quick_to_die

pytestmark = [pytest.mark.slow, pytest.mark.spark]
ROWS = 10
PATTERNS = {"plain": ("*.parquet", "**/*.parquet"), "parts": ("*/*.parquet", "**/*.parquet")}


def _rows(files: int) -> list[list[int]]:
    return sorted([row % 7, file * 50 + row] for file in range(files) for row in range(ROWS))


def _by_arrow(folder: Path) -> list[list[int]]:
    rows = ds.dataset(folder, format="parquet", partitioning="hive").to_table(columns=["k", "v"]).to_pylist()
    return sorted([row["k"], row["v"]] for row in rows)


def _by_duckdb(folder: Path, pattern: str) -> list[list[int]]:
    with duckdb.connect() as database:
        found = database.execute(f"SELECT k::INT, v FROM read_parquet('{folder}/{pattern}')").fetchall()
    return sorted([k, v] for k, v in found)


def _without_spark(out: Path) -> dict[str, list[list[int]]]:
    found = {}
    for name, patterns in PATTERNS.items():
        found[f"{name} by pyarrow"] = _by_arrow(out / name)
        found |= {f"{name} by DuckDB, {each}": _by_duckdb(out / name, each) for each in patterns}
    return found


def test_every_reader_finds_every_committed_row_once_before_and_after_restarts_and_rewinds(stage: Stage) -> None:
    stage.store.pipelines.change(NAME, quick_to_die, actor="tester")
    source, out = stage.folder / "source", stage.folder / "out"
    out.mkdir()

    def read(when: str) -> dict[str, list[list[int]]]:
        by_spark: dict[str, list[list[int]]] = json.loads((out / f"{when}.json").read_text())
        return by_spark | _without_spark(out)

    feed(source, 2, rows=ROWS)
    first = stage.start("readers", source, out)
    assert first.wait() == 0, first.said()
    assert len(read("after")) == 12
    for reader, rows in read("after").items():
        assert rows == _rows(2), reader

    feed(source, 2, rows=ROWS, start=2)
    stage.delete_work(1)
    killed = stage.start("readers", source, out, "yes")
    assert killed.wait() == -signal.SIGKILL, killed.said()
    assert list(out.rglob("*.staged")), "the test means that something is staged"
    for reader, rows in _without_spark(out).items():
        assert rows == _rows(2), f"{reader} sees what is staged"

    again = stage.start("readers", source, out)
    assert again.wait() == 0, again.said()
    assert stage.store.attempts.get(NAME, 3).rung is Rung.TIP
    assert set(map(str, json.loads((out / "before.json").read_text()).values())) == {str(_rows(2))}
    for reader, rows in read("after").items():
        assert rows == _rows(4), reader

    feed(source, 1, rows=ROWS, start=4)
    stage.delete_work(3)
    stage.restore()
    rewound = stage.start("readers", source, out)
    assert rewound.wait() == 0, rewound.said()
    for reader, rows in read("after").items():
        assert rows == _rows(5), reader
