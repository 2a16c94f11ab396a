"""What one ack costs in checkpoints of very different sizes.

One process acknowledges everything, 100 acks in each call. The sizes take turns on one database; the cost of a size is
the median over its calls, so that a pause of the machine does not count. A cost that grows with the number of
participants that are still pending would show at once: in the largest checkpoint almost all of them are.
"""

import itertools
from collections.abc import Sequence
from functools import partial

from airflow_provider_ckpt.metastore import Metastore
from airflow_provider_ckpt.protocol.records import Ack, Ref

from .databases import Servers
from .measure import Goal, Line, Say, Seconds, Sizes, median_of, show, timed
from .sample import ATTEMPT, HOST, batches, freeze, make_ack, participants, run_pipeline

CALLS = 100  # at most, for each size


def bench(servers: Servers, sizes: Sizes, say: Say) -> list[Line]:
    return [_compare(servers.fresh(kind).open(), kind, sizes, say) for kind in ("SQLite", "PostgreSQL")]


def _compare(store: Metastore, kind: str, sizes: Sizes, say: Say) -> Line:
    waiting = {size: _Waiting(store, size, sizes.batch) for size in sizes.flat}
    rounds = range(min(CALLS, max(sizes.flat) // sizes.batch))
    times = [{size: each.acknowledge() for size, each in waiting.items()} for _ in rounds]
    costs = {size: median_of([found[size] for found in times]) / sizes.batch for size in waiting}
    say(f"{kind}: " + ", ".join(f"{size:,} participants {show(cost)} an ack" for size, cost in costs.items()))
    small, large = min(costs), max(costs)
    return Line(
        what=f"cost of an ack, {kind}",
        ours=f"{show(costs[large])} with {large:,}",
        against=f"{show(costs[small])} with {small:,} participants",
        ratio=costs[large] / costs[small],
        goal=Goal(most=1.5),
    )


class _Waiting:
    """Checkpoints of one size; when all have acknowledged, the next one."""

    def __init__(self, store: Metastore, size: int, batch: int) -> None:
        self._store = store
        self._size = size
        self._batch = batch
        self._rounds = itertools.count(1)
        self._left: list[Sequence[Ack]] = []
        self._ref = self._next()
        self.acknowledge()  # the first call connects and compiles

    def acknowledge(self) -> Seconds:
        """The next call's time."""
        if not self._left:
            self._ref = self._next()
        batch = self._left.pop()
        return timed(partial(self._store.acks.acknowledge, self._ref, ATTEMPT, batch, host=HOST))

    def _next(self) -> Ref:
        pipeline = f"of-{self._size}-{next(self._rounds)}"
        run_pipeline(self._store, pipeline)
        names = participants(self._size)
        ref = freeze(self._store, pipeline, names)
        self._left = batches([make_ack(name, ref) for name in names], self._batch)
        return ref
