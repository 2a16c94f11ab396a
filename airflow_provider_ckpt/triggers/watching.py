"""One poll loop for any number of waiting triggers: in a triggerer process, for each metastore and each question, one.

The loop asks in a thread, so that the triggerer's own loop never waits for a database, and lives while anybody waits.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Hashable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from airflow.sdk import conf

from airflow_provider_ckpt.hooks.ckpt import Access
from airflow_provider_ckpt.metastore import Closeness, Metastore, Pulse, Sight, feel, look, look_closer
from airflow_provider_ckpt.protocol.errors import CkptError
from airflow_provider_ckpt.protocol.records import Ref
from airflow_provider_ckpt.triggers.events import KINDS

_log = logging.getLogger(__name__)
_CLOSER_EVERY = 10  # looks
_HEARD = frozenset(kind for kinds in KINDS.values() for kind in kinds)

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
Ask = Callable[[Metastore, Collection[Key]], Mapping[Key, Value]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A checkpoint as the loop saw it; `closeness` is a few looks old."""

    sight: Sight
    closeness: Closeness | None


class Loop(Generic[Key, Value]):
    """Asks the store about everything that somebody waits for, with one query."""

    def __init__(self, store: Metastore, ask: Ask[Key, Value]) -> None:
        self.store = store
        self._ask = ask
        self._waiting: dict[Key, set[asyncio.Queue[Value]]] = {}
        self._last: dict[Key, Value] = {}
        self._complaint = ""
        self._every = conf.getfloat("ckpt", "poll_interval", fallback=1.0)
        self.looks = 0
        self._task = asyncio.create_task(self._run(), name="ckpt-watching")

    async def follow(self, key: Key) -> AsyncIterator[Value]:
        """Every new value; one that does not exist (yet) is waited for."""
        queue: asyncio.Queue[Value] = asyncio.Queue()
        if key in self._last:
            queue.put_nowait(self._last[key])
        self._waiting.setdefault(key, set()).add(queue)
        try:
            while True:
                yield await queue.get()
        finally:
            self._waiting[key].discard(queue)
            if not self._waiting[key]:
                del self._waiting[key]
                self._last.pop(key, None)

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await asyncio.to_thread(self.store.close)

    async def _run(self) -> None:
        while True:
            if self._waiting:
                await self._look(list(self._waiting))
            await asyncio.sleep(self._every)

    async def _look(self, wanted: list[Key]) -> None:
        try:
            seen = await asyncio.to_thread(self._ask, self.store, wanted)
        except CkptError as error:
            self._complain(str(error))
            return
        self._complain("")
        self.looks += 1
        for key, value in seen.items():
            if key in self._waiting and self._last.get(key) != value:
                self._last[key] = value
                for queue in self._waiting[key]:
                    queue.put_nowait(value)

    def _complain(self, about: str) -> None:
        """Say it once: what does not answer is asked again at the next look."""
        if about and about != self._complaint:
            _log.warning("%s", about)
        self._complaint = about


class _Looking:
    """Asks for the phases at every look, and counts acknowledgements at every tenth."""

    def __init__(self) -> None:
        self._looks = 0
        self._closeness: Mapping[Ref, Closeness] = {}

    def __call__(self, store: Metastore, refs: Collection[Ref]) -> dict[Ref, Look]:
        if self._looks % _CLOSER_EVERY == 0:
            self._closeness = look_closer(store.engine, refs)
        self._looks += 1
        seen = look(store.engine, refs)
        return {ref: Look(sight=sight, closeness=self._closeness.get(ref)) for ref, sight in seen.items()}


def _feeling(store: Metastore, attempts: Collection[tuple[str, int]]) -> dict[tuple[str, int], Pulse]:
    return feel(store.engine, attempts)


class _Listening:
    """Knows the number of the newest event of each pipeline that anybody waits for.

    Silence has no event of its own until somebody notices it: that is done here.
    """

    def __init__(self) -> None:
        self._newest: dict[str, int] = {}

    def __call__(self, store: Metastore, pipelines: Collection[str]) -> dict[str, int]:
        store.attempts.note_silence(actor="airflow triggerer")
        for pipeline in pipelines:
            if pipeline not in self._newest:
                self._newest[pipeline] = store.events.position(pipeline)
        for event in store.events.since(self._newest, _HEARD):
            self._newest[event.pipeline] = event.seq
        return dict(self._newest)


@dataclass(slots=True)
class _Shared:
    loop: Loop[Any, Any]
    users: int = 0


_shared: dict[tuple[str, str], _Shared] = {}


@asynccontextmanager
async def watching_checkpoints(access: Access) -> AsyncIterator[Loop[Ref, Look]]:
    async with _watching("checkpoints", access, _Looking()) as loop:
        yield loop


@asynccontextmanager
async def watching_attempts(access: Access) -> AsyncIterator[Loop[tuple[str, int], Pulse]]:
    async with _watching("attempts", access, _feeling) as loop:
        yield loop


@asynccontextmanager
async def watching_events(access: Access) -> AsyncIterator[Loop[str, int]]:
    async with _watching("events", access, _Listening()) as loop:
        yield loop


@asynccontextmanager
async def _watching(question: str, access: Access, ask: Ask[Any, Any]) -> AsyncIterator[Loop[Any, Any]]:
    key = question, access.places.metastore_url
    if key not in _shared:
        _shared[key] = _Shared(Loop(access.open_store(), ask))
    shared = _shared[key]
    shared.users += 1
    try:
        yield shared.loop
    finally:
        shared.users -= 1
        if not shared.users:
            del _shared[key]
            await shared.loop.close()
