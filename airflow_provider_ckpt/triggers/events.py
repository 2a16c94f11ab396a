"""What happens to pipelines, as events that Dags can be scheduled on."""

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from airflow_provider_ckpt.protocol.errors import Misused
from airflow_provider_ckpt.protocol.records import Event
from airflow_provider_ckpt.triggers.base import access_by

if TYPE_CHECKING:
    from airflow_provider_ckpt.metastore import Metastore

ATTEMPT_FAILED = "attempt failed"
CHECKPOINT_COMPLETED = "checkpoint completed"
CHECKPOINT_FAILED = "checkpoint failed"
KINDS: dict[str, frozenset[str]] = {
    ATTEMPT_FAILED: frozenset({"attempt.failed", "attempt.silent"}),
    CHECKPOINT_COMPLETED: frozenset({"checkpoint.completed"}),
    CHECKPOINT_FAILED: frozenset({"checkpoint.failed"}),
}
_SETTLED = 10.0  # seconds until an event that was fired has certainly reached Airflow's own table


class CkptEventTrigger(BaseEventTrigger):
    """Fires for each event of a pipeline, as an asset event.

    ::

        failed = Asset(
            "orders failed",
            watchers=[
                AssetWatcher(
                    name="store",
                    trigger=CkptEventTrigger(ckpt_conn_id="ckpt_default", pipeline="orders", event="attempt failed"),
                )
            ],
        )

    The event carries `pipeline`, `attempt`, `checkpoint`, `kind`, `reason` and its number `seq` in the store. All
    watchers of a connection share one poll loop. How far a watcher is, is kept beside its asset: after a restart of
    the triggerer it goes on there, and events of the last seconds come twice rather than never. An event is a wake-up:
    Airflow drops some of those that arrive while a run is queued, so that whoever is woken reads the store.

    :param event: `attempt failed` (also one that has fallen silent), `checkpoint completed` or `checkpoint failed`.
    """

    def __init__(self, *, ckpt_conn_id: str, pipeline: str, event: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.ckpt_conn_id = ckpt_conn_id
        self.pipeline = pipeline
        self.event = event
        self._saving: set[asyncio.Task[None]] = set()

    def serialize(self) -> tuple[str, dict[str, Any]]:
        arguments = {"ckpt_conn_id": self.ckpt_conn_id, "pipeline": self.pipeline, "event": self.event}
        return f"{type(self).__module__}.{type(self).__qualname__}", arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        from airflow_provider_ckpt.triggers.watching import watching_events

        access = await access_by(self.ckpt_conn_id)
        async with watching_events(access) as loop:
            position = await self._begin(loop.store)
            async for newest in loop.follow(self.pipeline):
                while position < newest and (found := await self._since(loop.store, position)):
                    for event in found:
                        yield TriggerEvent(_payload(event))
                    position = found[-1].seq
                    self._save_later(position)

    async def cleanup(self) -> None:
        for task in self._saving:
            task.cancel()

    async def _begin(self, store: "Metastore") -> int:
        """Where it left off; at first before the last event of its kind, so that what is wrong already is heard."""
        saved = None if self.asset_state_store is None else await self.asset_state_store.aget(self._key)
        if isinstance(saved, int):
            return saved
        last = await asyncio.to_thread(self._last, store)
        return await asyncio.to_thread(store.events.position, self.pipeline) if last is None else last.seq - 1

    def _last(self, store: "Metastore") -> Event | None:
        found = (store.events.last(self.pipeline, kind) for kind in self._kinds)
        return max((event for event in found if event is not None), key=lambda event: event.seq, default=None)

    async def _since(self, store: "Metastore", position: int) -> list[Event]:
        return await asyncio.to_thread(store.events.since, {self.pipeline: position}, self._kinds)

    def _save_later(self, position: int) -> None:
        task = asyncio.create_task(self._save(position))
        self._saving.add(task)
        task.add_done_callback(self._saving.discard)

    async def _save(self, position: int) -> None:
        await asyncio.sleep(_SETTLED)
        if self.asset_state_store is not None:
            await self.asset_state_store.aset(self._key, position)

    @property
    def _key(self) -> str:
        return f"ckpt {self.pipeline} {self.event}"

    @property
    def _kinds(self) -> frozenset[str]:
        if self.event not in KINDS:
            raise Misused(f"There is no event {self.event!r}; there are: {', '.join(KINDS)}.")
        return KINDS[self.event]


def _payload(event: Event) -> dict[str, Any]:
    return {
        "seq": event.seq,
        "pipeline": event.pipeline,
        "kind": event.kind,
        "attempt": event.attempt,
        "checkpoint": event.checkpoint,
        "reason": event.reason,
    }
