"""The app on a store with a past, in this process; Airflow's own tables are real and empty."""

import tests.airflow.home  # noqa: F401 - before anything imports Airflow

# isort: split
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from playwright.sync_api import Browser

from airflow_provider_ckpt.ui import opened
from airflow_provider_ckpt.ui.app import make_app
from tests.airflow.conftest import connect
from tests.ui import scene
from tests.ui.client import Client, program
from tests.ui.people import ADA
from tests.ui.scene import Past
from tests.ui.stage import browser
from tests.ui.tables import make_tables


@pytest.fixture(scope="session")
def airflow_tables() -> None:
    """The tables that are looked at; a real Airflow with all of them is in test_browser."""
    make_tables()


@pytest.fixture
def app(airflow_tables: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store_url: str) -> Iterator[FastAPI]:
    connect(monkeypatch, password=store_url, extra={"storage": str(tmp_path / "storage")})
    _forget()
    yield make_app()
    _forget()


def _forget() -> None:
    """What is kept for the life of a process, between two tests."""
    opened._access.cache_clear()
    opened._open.cache_clear()


@pytest.fixture
def store_url(new_database: Callable[[str], str]) -> str:
    return new_database("sqlite")


@pytest.fixture
def past(store_url: str, tmp_path: Path) -> Iterator[Past]:
    """A pipeline `orders` that has just begun."""
    past = scene.beginning(store_url, tmp_path / "storage")
    yield past
    past.close()


@pytest.fixture
def chromium() -> Iterator[Browser]:
    with browser() as chromium:
        yield chromium


@pytest.fixture
def ada(app: FastAPI) -> Client:
    return program(app, ADA)
