"""Waiting for the end of an attempt in the triggerer: no worker slot, no endless log, survives restarts."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from airflow.triggers.base import TriggerEvent

from airflow_provider_ckpt.protocol.errors import Misused
from airflow_provider_ckpt.protocol.records import DesiredState, TriggerRequest
from airflow_provider_ckpt.triggers.base import CkptTrigger

if TYPE_CHECKING:
    from airflow_provider_ckpt.hooks.ckpt import Access
    from airflow_provider_ckpt.metastore import Metastore

_log = logging.getLogger(__name__)


class AttemptTrigger(CkptTrigger):
    """Fires when an attempt has ended, was replaced by a newer one, or has fallen silent.

    A task that a person marks or clears stops its pipeline, with a savepoint where one is wanted.

    :param pipeline: the pipeline's name.
    :param attempt: the attempt's number.
    :param savepoint: the name of the savepoint that is taken when the task is killed; "" for none.
    :param stopper: who is said to have stopped the pipeline then.
    """

    def __init__(self, *, ckpt_conn_id: str, pipeline: str, attempt: int, savepoint: str, stopper: str) -> None:
        super().__init__(
            ckpt_conn_id=ckpt_conn_id, pipeline=pipeline, attempt=attempt, savepoint=savepoint, stopper=stopper
        )
        self.pipeline = pipeline
        self.attempt = attempt
        self.savepoint = savepoint
        self.stopper = stopper

    async def run(self) -> AsyncIterator[TriggerEvent]:
        from airflow_provider_ckpt.triggers.watching import watching_attempts

        async with watching_attempts(await self.access()) as loop:
            async for pulse in loop.follow((self.pipeline, self.attempt)):
                self.log.info("Attempt %d of %s is %s.", self.attempt, self.pipeline, pulse.status)
                if pulse.has_ended:
                    yield TriggerEvent({"attempt": self.attempt})
                    return

    async def on_kill(self) -> None:
        running = self.pipeline, self.attempt
        await asyncio.to_thread(stop_pipeline, await self.access(), running, self.savepoint, self.stopper)


def stop_pipeline(access: "Access", running: tuple[str, int], savepoint: str, stopper: str) -> None:
    """Mean it to be stopped, with a savepoint where one is wanted and can be had; its driver sees it and ends.

    Airflow ends a task also where it has lost sight of it and started it anew: then a newer attempt has begun, or will
    see who has stopped the pipeline; it stays as it is.

    :param running: the pipeline and the attempt that the task has run.
    """
    pipeline, attempt = running
    store = access.open_store()
    reason = "its task in Airflow was ended"
    try:
        if savepoint and _stop_with(store, savepoint, running, stopper, reason):
            return
        store.pipelines.desire(pipeline, DesiredState.STOPPED, actor=stopper, reason=reason, attempt=attempt)
    finally:
        store.close()


def _stop_with(store: "Metastore", savepoint: str, running: tuple[str, int], stopper: str, reason: str) -> bool:
    """Whether the savepoint was started, and the pipeline stopped with it."""
    pipeline, attempt = running
    request = TriggerRequest(
        pipeline=pipeline,
        key=f"{stopper} attempt {attempt} {savepoint}",
        requested_by=stopper,
        reason=reason,
        savepoint=savepoint,
        then_stop=True,
        attempt=attempt,
    )
    try:
        return store.barriers.trigger(request).checkpoint is not None
    except Misused as error:  # the name is taken, by an earlier kill perhaps: to stop matters more
        _log.warning("The pipeline is stopped without a savepoint: %s", error)
        return False
