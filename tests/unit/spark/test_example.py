"""The example's foreachBatch: an old driver that wakes up in the middle of it harms nothing."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_ckpt.spark.example import keep


def _batch(orders: int) -> Any:
    return SimpleNamespace(collect=lambda: [SimpleNamespace(shop=1, orders=orders, amount=10 * orders)])


def test_the_attempts_number_keeps_an_old_driver_from_writing_over_a_newer_table(tmp_path: Path) -> None:
    file = tmp_path / "totals.json"
    keep(file, 9)(_batch(1), 0)
    keep(file, 10)(_batch(2), 1)
    keep(file, 10)(_batch(3), 2)
    with pytest.raises(RuntimeError, match="attempt 10 has written"):
        keep(file, 9)(_batch(1), 1)
    assert json.loads(file.read_text()) == {"1": [3, 30]}


def test_as_plain_spark_there_is_no_token(tmp_path: Path) -> None:
    keep(tmp_path / "totals.json", None)(_batch(1), 0)
    assert json.loads((tmp_path / "totals.json").read_text()) == {"1": [1, 10]}
