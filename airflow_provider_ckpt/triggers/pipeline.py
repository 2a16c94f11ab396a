"""Waiting for something to change about a pipeline, without a worker."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from airflow.triggers.base import TriggerEvent

from airflow_provider_ckpt.protocol.errors import TryAgain
from airflow_provider_ckpt.triggers.base import CkptTrigger

if TYPE_CHECKING:
    from airflow_provider_ckpt.hooks.ckpt import Access

_log = logging.getLogger(__name__)
_AT_LEAST_EVERY = 60.0  # seconds: age and silence change without an event


class PipelineTrigger(CkptTrigger):
    """Fires when something has happened to a pipeline, or a minute has passed: then somebody looks again.

    :param pipeline: the pipeline's name.
    :param every: seconds between two looks.
    """

    def __init__(self, *, ckpt_conn_id: str, pipeline: str, every: float) -> None:
        super().__init__(ckpt_conn_id=ckpt_conn_id, pipeline=pipeline, every=every)
        self.pipeline = pipeline
        self.every = every

    async def run(self) -> AsyncIterator[TriggerEvent]:
        access = await self.access()
        began = await asyncio.to_thread(_position, access, self.pipeline)
        waited = 0.0
        while waited < _AT_LEAST_EVERY:
            await asyncio.sleep(self.every)
            waited += self.every
            position = await asyncio.to_thread(_position, access, self.pipeline)
            if position is not None and position != began:
                break
        yield TriggerEvent({"pipeline": self.pipeline})


def _position(access: "Access", pipeline: str) -> int | None:
    """The number of its newest event; None while the store is away: then it is asked again."""
    try:
        store = access.open_store()
        try:
            return store.events.position(pipeline)
        finally:
            store.close()
    except TryAgain as error:
        _log.warning("%s", error)
        return None
