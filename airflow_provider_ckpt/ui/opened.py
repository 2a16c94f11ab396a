"""The store and the storage that the page looks into: opened once, looked up again every minute."""

import time
from functools import lru_cache
from typing import Annotated

from fastapi import Depends

from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.hooks.ckpt import Access
from airflow_provider_ckpt.hooks.server import server_access
from airflow_provider_ckpt.protocol.errors import NotFound

_PERIOD = 60.0  # seconds that a connection is taken as it was


def access() -> Access:
    return _access(int(time.monotonic() / _PERIOD))


def opened() -> Context:
    """For reading; whoever acts says who it is.

    :raises NotFound: while nobody has made a store.
    """
    found = access()
    if not found.has_store:
        raise NotFound(
            "There is no metastore yet: the first task of a pipeline's Dags makes it, or `airflow ckpt init`."
        )
    return _open(found)


@lru_cache(maxsize=1)
def _access(period: int) -> Access:  # noqa: ARG001 - what was known in an earlier one is forgotten
    return server_access()


@lru_cache(maxsize=2)
def _open(found: Access) -> Context:
    """Kept for as long as the process lives, with its connections."""
    return Context(store=found.open_store(), storage=found.open_storage(), actor="page")


Opened = Annotated[Context, Depends(opened)]
