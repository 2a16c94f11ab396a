"""One watcher for any number of waiting callers: one query per tick, whatever their number."""

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any

import sqlalchemy as sa

from airflow_provider_ckpt.metastore.engine import Engine
from airflow_provider_ckpt.metastore.schema import acks, attempts, checkpoints, pipelines
from airflow_provider_ckpt.protocol.errors import NotFound, TryAgain
from airflow_provider_ckpt.protocol.phases import ENDED, UNDECIDED, Phase
from airflow_provider_ckpt.protocol.records import ALIVE, AckStatus, AttemptStatus, Ref
from airflow_provider_ckpt.protocol.settings import settings_from_json

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Closeness:
    """How far the acknowledgements of a checkpoint are, and one of those that are missing."""

    acked: int
    expected: int
    waits_for: str | None


def look_closer(engine: Engine, refs: Iterable[Ref]) -> dict[Ref, Closeness]:
    """Count the acknowledgements of any number of checkpoints with one query; O(participants): not at every tick."""
    wanted = [(ref.pipeline, ref.id) for ref in refs][:_CHUNK]
    is_pending = acks.c.status == AckStatus.PENDING
    statement = (
        sa.select(
            acks.c.pipeline,
            acks.c.checkpoint,
            sa.func.count().label("expected"),
            sa.func.sum(sa.case((is_pending, 1), else_=0)).label("pending"),
            sa.func.min(sa.case((is_pending, acks.c.participant))).label("waits_for"),
        )
        .where(sa.tuple_(acks.c.pipeline, acks.c.checkpoint).in_(wanted))
        .group_by(acks.c.pipeline, acks.c.checkpoint)
    )
    with engine.read() as tx:
        return {
            Ref(row.pipeline, row.checkpoint): Closeness(
                acked=row.expected - row.pending, expected=row.expected, waits_for=row.waits_for
            )
            for row in tx.connection.execute(statement)
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulse:
    """What one look saw of an attempt."""

    status: AttemptStatus
    is_current: bool
    is_silent: bool
    is_unclaimed: bool  # it was submitted, and no driver has claimed it within `claim_timeout`
    failure: str | None

    @property
    def has_ended(self) -> bool:
        return not self.is_current or self.is_silent or self.is_unclaimed or self.status not in ALIVE


def feel(engine: Engine, wanted: Iterable[tuple[str, int]]) -> dict[tuple[str, int], Pulse]:
    """See any number of attempts, by pipeline and number, with one query."""
    is_wanted = sa.tuple_(attempts.c.pipeline, attempts.c.number).in_(list(wanted)[:_CHUNK])
    statement = (
        sa.select(attempts, pipelines.c.current_attempt, pipelines.c.settings)
        .join(pipelines, attempts.c.pipeline == pipelines.c.name)
        .where(is_wanted)
    )
    with engine.read() as tx:
        now = tx.now()
        return {(row.pipeline, row.number): _pulse(row, now) for row in tx.connection.execute(statement)}


def _pulse(row: sa.Row[Any], now: datetime) -> Pulse:
    settings = settings_from_json(row.settings)
    is_waiting = row.status == AttemptStatus.PLANNED and row.submitted_at is not None
    return Pulse(
        status=AttemptStatus(row.status),
        is_current=row.current_attempt == row.number,
        is_silent=row.heartbeat_at is not None and now - row.heartbeat_at > settings.attempt_ttl,
        is_unclaimed=is_waiting and now - row.submitted_at > settings.claim_timeout,
        failure=row.failure,
    )


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
