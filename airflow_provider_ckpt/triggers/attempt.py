"""Waiting for the end of an attempt in the triggerer: no worker slot, no endless log, survives restarts."""

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import TriggerEvent

from airflow_provider_ckpt.protocol.errors import Misused
from airflow_provider_ckpt.protocol.records import AttemptStatus, DesiredState, TriggerRequest
from airflow_provider_ckpt.triggers.base import CkptTrigger

if TYPE_CHECKING:
    from airflow_provider_ckpt.hooks.ckpt import Access
    from airflow_provider_ckpt.hooks.cluster import Application
    from airflow_provider_ckpt.metastore import Metastore

_log = logging.getLogger(__name__)
_ASK_EVERY = 10.0  # seconds between two questions to the cluster
_SETTLED = 2.0  # seconds


class AttemptTrigger(CkptTrigger):
    """Fires when an attempt has ended, was replaced by a newer one, is lost, or was not claimed in time.

    The cluster is asked as well: an application that has ended there ends the waiting, also before it has claimed its
    attempt. A task that a person marks or clears stops its pipeline, with a savepoint where one is wanted; its driver
    sees it and ends, and one that waits in the cluster's queue is ended there.

    :param pipeline: the pipeline's name.
    :param attempt: the attempt's number.
    :param savepoint: the name of the savepoint that is taken when the task is killed; "" for none.
    :param stopper: who is said to have stopped the pipeline then.
    :param since: the number of the newest event when the task began: a start after it is not undone.
    :param application: what the cluster knows the driver by, as `Application.to_json` gives it.
    """

    def __init__(
        self,
        *,
        ckpt_conn_id: str,
        pipeline: str,
        attempt: int,
        savepoint: str,
        stopper: str,
        since: int | None = None,
        application: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(
            ckpt_conn_id=ckpt_conn_id,
            pipeline=pipeline,
            attempt=attempt,
            savepoint=savepoint,
            stopper=stopper,
            since=since,
            application=application,
        )
        self.running = Running(pipeline=pipeline, attempt=attempt, since=since)
        self.savepoint = savepoint
        self.stopper = stopper
        self.application = application

    async def run(self) -> AsyncIterator[TriggerEvent]:
        waiting = [asyncio.create_task(self._until_ended())]
        if self.application is not None:
            waiting.append(asyncio.create_task(self._until_gone(self.application)))
        try:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            yield TriggerEvent({"attempt": self.running.attempt, "why": next(iter(done)).result()})
        finally:
            for each in waiting:
                each.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    async def on_kill(self) -> None:
        access = await self.access()
        await asyncio.to_thread(stop_pipeline, access, self.running, self.savepoint, self.stopper)
        if self.application is not None:
            await asyncio.to_thread(end_unclaimed, access, self.running, self.application, self.stopper)

    async def _until_ended(self) -> str:
        """What the metastore says."""
        from airflow_provider_ckpt.triggers.watching import watching_attempts

        pipeline, attempt = self.running.pipeline, self.running.attempt
        async with watching_attempts(await self.access()) as loop:
            async for pulse in loop.follow((pipeline, attempt)):
                self.log.info("Attempt %d of %s is %s.", attempt, pipeline, pulse.status)
                if pulse.is_unclaimed:
                    return await asyncio.to_thread(self._why_unclaimed)
                if pulse.has_ended:
                    return "it was not heard of any more"
        raise AssertionError("the loop ends by being cancelled only")

    async def _until_gone(self, application: dict[str, Any]) -> str:
        """What the cluster says."""
        while True:
            await asyncio.sleep(_ASK_EVERY)
            found = await asyncio.to_thread(_application(application).ask)
            if found is not None and found.has_ended:
                await asyncio.sleep(_SETTLED)  # what it wrote into the metastore before its end comes first
                return f"its application {application['id']} has ended: {found}"

    def _why_unclaimed(self) -> str:
        found = None if self.application is None else _application(self.application).ask()
        state = f" Its application {self.application['id']} is {found}." if self.application and found else ""
        return (
            f"no driver has claimed it within claim_timeout.{state} Give it more time with "
            f"`ckpt pipelines {self.running.pipeline} --set claim_timeout=1h`, or more room in the cluster"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """What a task runs: the attempt, and the newest event when it began."""

    pipeline: str
    attempt: int
    since: int | None = None


def stop_pipeline(access: "Access", running: Running, savepoint: str, stopper: str) -> None:
    """Mean it to be stopped, with a savepoint where one is wanted and can be had; its driver sees it and ends.

    Airflow ends a task also where it has lost found of it and started it anew, and may do so late: then a newer attempt
    has begun, or will see who has stopped the pipeline, or a person has started it; it stays as it is.
    """
    store = access.open_store()
    reason = "its task in Airflow was ended"
    try:
        if savepoint and _stop_with(store, savepoint, running, stopper, reason):
            return
        store.pipelines.desire(
            running.pipeline,
            DesiredState.STOPPED,
            actor=stopper,
            reason=reason,
            attempt=running.attempt,
            since=running.since,
        )
    finally:
        store.close()


def end_unclaimed(access: "Access", running: Running, application: dict[str, Any], stopper: str) -> None:
    """End what waits in a cluster's queue for a pipeline that is stopped; a driver that runs ends by itself."""
    store = access.open_store()
    try:
        attempt = store.attempts.get(running.pipeline, running.attempt)
        stopped = store.pipelines.get(running.pipeline).desired_state is DesiredState.STOPPED
        if not stopped or attempt.status is not AttemptStatus.PLANNED:
            return
        if _application(application).kill():
            store.attempts.end(running.pipeline, running.attempt, AttemptStatus.STOPPED, actor=stopper)
    finally:
        store.close()


def _application(document: dict[str, Any]) -> "Application":
    from airflow_provider_ckpt.hooks.cluster import Application

    return Application.from_json(document)


def _stop_with(store: "Metastore", savepoint: str, running: Running, stopper: str, reason: str) -> bool:
    """Whether the savepoint was started, and the pipeline stopped with it."""
    request = TriggerRequest(
        pipeline=running.pipeline,
        key=f"{stopper} attempt {running.attempt} {savepoint}",
        requested_by=stopper,
        reason=reason,
        savepoint=savepoint,
        then_stop=True,
        attempt=running.attempt,
        since=running.since,
    )
    try:
        return store.barriers.trigger(request).checkpoint is not None
    except Misused as error:  # the name is taken, by an earlier kill perhaps: to stop matters more
        _log.warning("The pipeline is stopped without a savepoint: %s", error)
        return False
