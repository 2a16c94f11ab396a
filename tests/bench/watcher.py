"""How soon a watcher sees the last ack while many other checkpoints are waited for.

A thousand threads really wait, each for a checkpoint of another pipeline with three pending participants; one more
thread waits for the checkpoint whose last ack is committed. Measured is from the return of that `acknowledge` to the
return of `wait`, in the same process, and set against the watcher's interval: half of it is what a poll costs on
average, all of it is the worst. Besides: how many queries a tick sends, and what a tick costs for all against for one.
"""

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import sqlalchemy as sa

from airflow_provider_ckpt.metastore import Metastore, Watcher, look
from airflow_provider_ckpt.metastore.schema import checkpoints
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.records import Ref

from .databases import Servers
from .measure import Goal, Line, Say, Seconds, Sizes, in_turns, median_of, show, timed
from .sample import ATTEMPT, clone, freeze, make_ack, run_pipeline

EVERY = 0.5  # the watcher's own default
NAMES = [f"totals/state/0/0-{partition}" for partition in range(3)]


def bench(servers: Servers, sizes: Sizes, say: Say) -> list[Line]:
    return [
        line for kind in ("SQLite", "PostgreSQL") for line in _measure(servers.fresh(kind).open(), kind, sizes, say)
    ]


def _measure(store: Metastore, kind: str, sizes: Sizes, say: Say) -> Iterator[Line]:
    others, ours = _make_waiting(store, sizes)
    yield _tick(store, kind, others, say)
    with _counted(store) as queries, Watcher(store.engine, every=EVERY) as watcher, _waiting(store, watcher, others):
        time.sleep(2 * EVERY)  # all have registered, and been seen once
        delays = [_delay(store, watcher, ref) for ref in ours]
    say(f"{kind}: seen after {', '.join(map(show, sorted(delays)))}")
    yield Line(
        what=f"last ack to seen, {len(others):,} others waiting, {kind}",
        ours=f"{show(median_of(delays))}, at most {show(max(delays))}",
        against=f"interval of {show(EVERY)}",
        ratio=max(delays) / EVERY,
        goal=Goal(most=1.5),  # with a second tick it would be 2
    )
    yield Line(
        what=f"queries of a tick, {kind}",
        ours=f"{len(queries)} queries",
        against=f"{watcher.ticks} ticks",
        ratio=len(queries) / watcher.ticks,
        goal=Goal(most=1),
    )


def _tick(store: Metastore, kind: str, others: list[Ref], say: Say) -> Line:
    one, all_ = partial(look, store.engine, others[:1]), partial(look, store.engine, others)
    pairs = in_turns(partial(timed, all_), partial(timed, one), 15)
    ours, theirs = show(median_of(pairs.ours)), show(median_of(pairs.theirs))
    say(f"{kind}: a tick for {len(others):,} takes {ours}, for one {theirs}")
    return Line(
        what=f"a tick for {len(others):,} checkpoints, {kind}",
        ours=ours,
        against=f"for one, {theirs}",
        ratio=pairs.slowness,
    )


def _make_waiting(store: Metastore, sizes: Sizes) -> tuple[list[Ref], list[Ref]]:
    """Checkpoints that nobody acknowledges, and those whose last ack we send."""
    run_pipeline(store, "model")
    ref = freeze(store, "model", NAMES)
    others = [f"other-{n}" for n in range(sizes.waiting)]
    ours = [f"ours-{n}" for n in range(sizes.waits)]
    clone(store, "model", others + ours)
    return [Ref(name, ref.id) for name in others], [Ref(name, ref.id) for name in ours]


def _delay(store: Metastore, watcher: Watcher, ref: Ref) -> Seconds:
    *early, last = (make_ack(name, ref) for name in NAMES)
    store.acks.acknowledge(ref, ATTEMPT, early)
    with ThreadPoolExecutor(1) as pool:
        seen = pool.submit(_wait_for, watcher, ref)
        time.sleep(random.uniform(0, EVERY))  # at any moment between two ticks
        store.acks.acknowledge(ref, ATTEMPT, [last])
        committed = time.monotonic()
        return max(seen.result() - committed, 0)


def _wait_for(watcher: Watcher, ref: Ref) -> float:
    sight = watcher.wait(ref, timeout=30)
    assert sight is not None, f"{ref} was not seen"
    assert not sight.has_pending
    return time.monotonic()


@contextmanager
def _waiting(store: Metastore, watcher: Watcher, refs: list[Ref]) -> Iterator[None]:
    """One thread for each; at the end their checkpoints fail, which they see."""
    threads = [threading.Thread(target=watcher.wait, args=(ref,), kwargs={"timeout": 3600}) for ref in refs]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        with store.engine.write() as tx:
            tx.connection.execute(sa.update(checkpoints).values(phase=Phase.FAILED))
        for thread in threads:
            thread.join()


@contextmanager
def _counted(store: Metastore) -> Iterator[list[str]]:
    """Every query that the watcher's thread sends."""
    statements: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if threading.current_thread().name == "ckpt-watcher" and not statement.startswith("BEGIN"):
            statements.append(statement)

    sa.event.listen(store.engine.sa, "before_cursor_execute", note)
    try:
        yield statements
    finally:
        sa.event.remove(store.engine.sa, "before_cursor_execute", note)
