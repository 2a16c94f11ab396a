"""One watcher for any number of waiting callers: one query per tick, whatever their number."""

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType

import sqlalchemy as sa

from airflow_provider_ckpt.metastore.engine import Engine
from airflow_provider_ckpt.metastore.schema import acks, checkpoints
from airflow_provider_ckpt.protocol.errors import NotFound, TryAgain
from airflow_provider_ckpt.protocol.phases import ENDED, UNDECIDED, Phase
from airflow_provider_ckpt.protocol.records import AckStatus, Ref

_CHUNK = 10_000  # bound parameters are limited


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What one tick saw of a checkpoint."""

    ref: Ref
    phase: Phase
    has_pending: bool
    is_overdue: bool

    @property
    def needs_attention(self) -> bool:
        """All have acknowledged, the deadline has passed, or it has ended: the caller's turn."""
        acknowledged = self.phase is Phase.IN_PROGRESS and not self.has_pending
        return acknowledged or self.is_overdue or self.phase is Phase.COMMITTING or self.phase in ENDED


def look(engine: Engine, refs: Iterable[Ref]) -> dict[Ref, Sight]:
    """See any number of checkpoints with one query for each ten thousand; O(1) for each, not O(participants)."""
    wanted = [(ref.pipeline, ref.id) for ref in refs]
    chunks = (wanted[start : start + _CHUNK] for start in range(0, len(wanted), _CHUNK))
    return {sight.ref: sight for chunk in chunks for sight in _look(engine, chunk)}


def _look(engine: Engine, wanted: list[tuple[str, int]]) -> list[Sight]:
    pending = sa.exists().where(
        acks.c.pipeline == checkpoints.c.pipeline,
        acks.c.checkpoint == checkpoints.c.id,
        acks.c.status == AckStatus.PENDING,
    )
    with engine.read() as tx:
        overdue = sa.and_(checkpoints.c.phase.in_(sorted(UNDECIDED)), checkpoints.c.deadline <= tx.now_sql)
        statement = sa.select(
            checkpoints.c.pipeline,
            checkpoints.c.id,
            checkpoints.c.phase,
            pending.label("pending"),
            overdue.label("overdue"),
        ).where(sa.tuple_(checkpoints.c.pipeline, checkpoints.c.id).in_(wanted))
        return [
            Sight(
                ref=Ref(row.pipeline, row.id),
                phase=Phase(row.phase),
                has_pending=row.pending,
                is_overdue=row.overdue,
            )
            for row in tx.connection.execute(statement)
        ]


class Watcher:
    """Watches in a thread of its own while anybody waits.

    ::

        with Watcher(store.engine) as watcher:
            sight = watcher.wait(ref, timeout=60)

    A store that does not answer for a while only delays: the next tick looks again.
    """

    def __init__(self, engine: Engine, *, every: float = 0.5) -> None:
        self._engine = engine
        self._every = every
        self._lock = threading.Lock()
        self._waited: dict[Ref, _Waited] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ckpt-watcher", daemon=True)
        self.ticks = 0

    def __enter__(self) -> "Watcher":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._thread.join()

    def wait(self, ref: Ref, *, timeout: float) -> Sight | None:
        """Wait until a checkpoint needs attention; None when the time is over.

        :raises NotFound: when there is no such checkpoint.
        """
        with self._lock:
            waited = self._waited.setdefault(ref, _Waited(self._lock))
            waited.callers += 1
            try:
                waited.changed.wait_for(lambda: waited.is_answered, timeout)
                return waited.answer(ref)
            finally:
                waited.callers -= 1
                if not waited.callers:
                    del self._waited[ref]

    def _run(self) -> None:
        while not self._stopped.wait(self._every):
            with self._lock:
                wanted = list(self._waited)
            if wanted:
                self._tick(wanted)

    def _tick(self, wanted: list[Ref]) -> None:
        try:
            seen = look(self._engine, wanted)
        except TryAgain:
            return
        with self._lock:
            self.ticks += 1
            for ref in wanted:
                if ref in self._waited:
                    self._waited[ref].see(seen.get(ref))


class _Waited:
    """One checkpoint and all who wait for it; only they are woken, and only for an answer."""

    def __init__(self, lock: threading.Lock) -> None:
        self.changed = threading.Condition(lock)
        self.callers = 0
        self._is_seen = False
        self._sight: Sight | None = None

    @property
    def is_answered(self) -> bool:
        return self._is_seen and (self._sight is None or self._sight.needs_attention)

    def see(self, sight: Sight | None) -> None:
        self._is_seen, self._sight = True, sight
        if self.is_answered:
            self.changed.notify_all()

    def answer(self, ref: Ref) -> Sight | None:
        if not self.is_answered:
            return None
        if self._sight is None:
            raise NotFound(f"There is no checkpoint {ref} to wait for.")
        return self._sight
