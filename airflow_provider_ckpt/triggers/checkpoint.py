"""Waiting for a checkpoint in the triggerer."""

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from airflow.triggers.base import TriggerEvent

from airflow_provider_ckpt.protocol.phases import ENDED
from airflow_provider_ckpt.protocol.reasons import FailureReason
from airflow_provider_ckpt.protocol.records import Ref
from airflow_provider_ckpt.triggers.base import CkptTrigger

if TYPE_CHECKING:
    from airflow_provider_ckpt.hooks.ckpt import Access
    from airflow_provider_ckpt.triggers.watching import Look


class CheckpointTrigger(CkptTrigger):
    """Fires when a checkpoint needs a worker: all have acknowledged, its time is over, or it has ended.

    All triggers of one connection share one query per second. A triggerer that is restarted goes on from what the
    store says. A task that a person marks or clears aborts its checkpoint, unless that is decided already.

    :param pipeline: the pipeline's name.
    :param checkpoint: the checkpoint's id.
    :param until_ended: fire when it has ended, not when it is acknowledged.
    """

    def __init__(self, *, ckpt_conn_id: str, pipeline: str, checkpoint: int, until_ended: bool = False) -> None:
        super().__init__(ckpt_conn_id=ckpt_conn_id, pipeline=pipeline, checkpoint=checkpoint, until_ended=until_ended)
        self.ref = Ref(pipeline, checkpoint)
        self.until_ended = until_ended

    async def run(self) -> AsyncIterator[TriggerEvent]:
        from airflow_provider_ckpt.triggers.watching import watching_checkpoints

        async with watching_checkpoints(await self.access()) as loop:
            async for seen in loop.follow(self.ref):
                self._say(seen)
                if seen.sight.phase in ENDED if self.until_ended else seen.sight.needs_attention:
                    yield TriggerEvent({"phase": str(seen.sight.phase)})
                    return

    def _say(self, seen: "Look") -> None:
        if seen.closeness is None:
            self.log.info("%s is %s.", self.ref, seen.sight.phase)
            return
        missing = "" if seen.closeness.waits_for is None else f"; among the missing: {seen.closeness.waits_for}"
        self.log.info(
            "%s is %s: %d of %d have acknowledged%s.",
            self.ref,
            seen.sight.phase,
            seen.closeness.acked,
            seen.closeness.expected,
            missing,
        )

    async def on_kill(self) -> None:
        await asyncio.to_thread(_abort, await self.access(), self.ref)


def _abort(access: "Access", ref: Ref) -> None:
    store = access.open_store()
    why = "its task in Airflow was marked or cleared by a person"
    try:
        store.checkpoints.fail(ref, FailureReason.ABORTED, why, actor="airflow")
    finally:
        store.close()
