"""Following a checkpoint until it has ended, and doing on the way what whoever looks must do.

When all have acknowledged it is completed, when its deadline has passed by the store's clock it is failed, and while
the sinks publish it is waited for. A follower that dies has done no harm: any other goes on from what the store says.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from airflow_provider_ckpt.coordinator.complete import complete
from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.metastore import Sight, Watcher, look
from airflow_provider_ckpt.protocol.errors import CkptError, LostRace, NotFound, OutcomeUnknown, Refused, TryAgain
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.records import SINK_DONE, Checkpoint, Ref

_log = logging.getLogger(__name__)
_TICK = 1.0  # seconds between two reports while nothing needs attention
_NAMED = 3  # how many of those who are waited for are named


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """How far a checkpoint is, and some of those it waits for."""

    checkpoint: Checkpoint
    acked: int
    expected: int | None  # None until membership is frozen
    waits_for: tuple[str, ...]  # queries without a cut, then participants, then sinks; at most three


OnProgress = Callable[[Seen], None]


def follow(context: Context, ref: Ref, *, timeout: float, on_progress: OnProgress = lambda seen: None) -> Checkpoint:
    """Follow a checkpoint until it has ended, or for `timeout` seconds; it may be in flight still.

    A store or a storage that does not answer for a while only delays, until the time is over.

    :raises NotFound: when there is no such checkpoint.
    """
    return _Follower(context, ref, on_progress).run(timeout)


class _Follower:
    def __init__(self, context: Context, ref: Ref, on_progress: OnProgress) -> None:
        self._context = context
        self._ref = ref
        self._on_progress = on_progress
        self._complaint = ""

    def run(self, timeout: float) -> Checkpoint:
        give_up = time.monotonic() + timeout
        with Watcher(self._context.store.engine) as watcher:
            while True:
                left = give_up - time.monotonic()
                found = self._step(is_last=left <= 0)
                if found is not None and (left <= 0 or not found.is_in_flight):
                    return found
                watcher.wait(self._ref, timeout=max(0.0, min(left, _TICK)))

    def _step(self, *, is_last: bool) -> Checkpoint | None:
        """Look, do what is to do, report; None when the store or the storage did not answer."""
        try:
            self._act(self._look())
            seen = see(self._context, self._ref)
        except (TryAgain, OutcomeUnknown) as error:
            if is_last:
                raise
            self._complain(error)
            return None
        self._on_progress(seen)
        return seen.checkpoint

    def _look(self) -> Sight:
        sight = look(self._context.store.engine, [self._ref]).get(self._ref)
        if sight is None:
            raise NotFound(f"There is no checkpoint {self._ref} to wait for.")
        return sight

    def _act(self, sight: Sight) -> None:
        is_acknowledged = sight.phase is Phase.IN_PROGRESS and not sight.has_pending
        if is_acknowledged or (sight.phase is Phase.COMMITTING and self._is_committed()):
            self._complete()
        elif sight.is_overdue:
            self._context.store.checkpoints.fail_overdue(self._ref.pipeline, actor=self._context.actor)

    def _complete(self) -> None:
        """Whoever is refused here has a failed checkpoint: what the store says next is the answer."""
        try:
            complete(self._context, self._ref)
        except (Refused, LostRace) as error:
            self._complain(error)

    def _is_committed(self) -> bool:
        return all(sink.status in SINK_DONE for sink in self._context.store.sinks.of(self._ref))

    def _complain(self, error: CkptError) -> None:
        """Say it once, not at every tick."""
        if str(error) != self._complaint:
            self._complaint = str(error)
            _log.warning("%s", error)


def see(context: Context, ref: Ref) -> Seen:
    """How far a checkpoint is now."""
    checkpoint = context.store.checkpoints.get(ref)
    progress = context.store.acks.progress(ref)
    return Seen(
        checkpoint=checkpoint,
        acked=progress.acked,
        expected=checkpoint.participants,
        waits_for=tuple(_waits_for(context, checkpoint)[:_NAMED]),
    )


def _waits_for(context: Context, checkpoint: Checkpoint) -> list[str]:
    store, ref = context.store, checkpoint.ref
    match checkpoint.phase:
        case Phase.TRIGGERED:
            captured = store.barriers.cuts(ref)
            order = store.attempts.graph(ref.pipeline, checkpoint.attempt).capture_order()
            return [query for query in order if query not in captured]
        case Phase.IN_PROGRESS:
            return [row.participant for row in store.acks.pending(ref, limit=_NAMED)]
        case Phase.COMMITTING:
            return [sink.sink for sink in store.sinks.of(ref) if sink.status not in SINK_DONE]
    return []
