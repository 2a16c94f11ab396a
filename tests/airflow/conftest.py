"""Airflow in the test's own process, orders that come in, and a connection to a real store."""

import tests.airflow.home  # noqa: F401 - before anything imports Airflow

# isort: split
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_provider_ckpt.testing.orders import Orders
from tests.house import House


@pytest.fixture
def orders(tmp_path: Path) -> Iterator[Orders]:
    (tmp_path / "target").mkdir()
    with Orders(tmp_path / "source", pause=2.0) as orders:
        yield orders


@pytest.fixture
def house(tmp_path: Path, new_database: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    """A store, a storage and scripted drivers; the connection `ckpt_default` leads there. Its clock is the store's."""
    house = House(new_database("sqlite"), tmp_path / "storage", clock=None)
    connect(monkeypatch, password=house.url, extra={"storage": str(house.folder), "work": str(tmp_path / "work")})
    yield house
    house.store.close()


def connect(monkeypatch: pytest.MonkeyPatch, **connection: object) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CKPT_DEFAULT", json.dumps({"conn_type": "ckpt", **connection}))
