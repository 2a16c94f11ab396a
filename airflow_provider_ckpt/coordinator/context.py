"""What every use case needs: the store, the storage, and the name of who acts."""

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar
from uuid import uuid4

from airflow_provider_ckpt.metastore import Metastore
from airflow_provider_ckpt.storage.base import Storage

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def _token() -> str:
    return uuid4().hex


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    store: Metastore
    storage: Storage
    actor: str
    workers: int = 4  # how many files are read or copied at once
    new_token: Callable[[], str] = _token
    sleep: Callable[[float], None] = time.sleep

    def each(self, work: Callable[[_Item], _Result], items: Iterable[_Item]) -> Iterable[_Result]:
        """Do the same work for many items, a few at once; results come in order."""
        if self.workers == 1:
            yield from map(work, items)
            return
        with ThreadPoolExecutor(self.workers, thread_name_prefix="ckpt") as pool:
            yield from pool.map(work, items)
