"""What a command works with: the store, the storage and the actor, opened when needed and closed at the end."""

import argparse
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import cast

from airflow_provider_ckpt.cli.settings import default_actor, places
from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.coordinator.places import Places
from airflow_provider_ckpt.metastore import Metastore, open_metastore
from airflow_provider_ckpt.protocol.errors import NotFound
from airflow_provider_ckpt.storage.base import Storage
from airflow_provider_ckpt.storage.opening import open_storage


class Session:
    """One run of one command.

    `context` has an open storage: whatever is wrong with its URL is said before anything happens. `reader` is for
    commands that only ask the store; they work without a storage.
    """

    def __init__(self, where: Places, actor: str) -> None:
        self.places = where
        self.actor = actor
        self._opened: list[Metastore] = []

    @classmethod
    def of(cls, args: argparse.Namespace) -> "Session":
        return cls(places(args), args.actor or default_actor())

    def __enter__(self) -> "Session":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for store in self._opened:
            store.close()

    @cached_property
    def context(self) -> Context:
        return Context(store=self.store, storage=self.open_storage(), actor=self.actor)

    @cached_property
    def reader(self) -> Context:
        return Context(store=self.store, storage=cast("Storage", _Later(self)), actor=self.actor)

    @cached_property
    def store(self) -> Metastore:
        """:raises NotFound: instead of making an empty SQLite file where there is none."""
        store = self.open_store()
        file = sqlite_file(store)
        if file is not None and not file.exists():
            raise NotFound(f"There is no metastore {file}. `ckpt init` makes one, or set CKPT_METASTORE to yours.")
        return store

    def open_store(self) -> Metastore:
        store = open_metastore(self.places.metastore_url)
        self._opened.append(store)
        return store

    def open_storage(self) -> Storage:
        return open_storage(self.places.storage_url)


class _Later:
    """A storage that is opened when somebody touches it, which those who only ask the store do not."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __getattr__(self, name: str) -> object:
        return getattr(self._session.context.storage, name)


def sqlite_file(store: Metastore) -> Path | None:
    """The file of a store on SQLite; None for others."""
    name = store.engine.sa.url.database or ":memory:"
    is_file = store.engine.dialect == "sqlite" and name != ":memory:" and not name.startswith("file:")
    return Path(name) if is_file else None
