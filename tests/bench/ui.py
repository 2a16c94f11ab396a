"""What the page asks, of a pipeline with 100,000 checkpoints and 5,000 participants, against one with 100 of each.

Both pipelines are in one store, each checkpoint with four events. The requests go through the app as a browser's do,
with Airflow's own authentication, in this process.
"""

import tests.airflow.home  # noqa: F401 - before anything imports Airflow

# isort: split
from collections.abc import Iterator
from functools import partial

import sqlalchemy as sa

from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.metastore import Metastore
from airflow_provider_ckpt.metastore.schema import checkpoints, events, pipelines
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.records import Ref
from airflow_provider_ckpt.storage.memory import MemoryStorage
from airflow_provider_ckpt.ui.app import make_app
from airflow_provider_ckpt.ui.opened import opened
from tests.ui.client import Client, program
from tests.ui.people import ADA
from tests.ui.tables import make_tables

from .databases import Servers
from .measure import Goal, Line, Say, Sizes, in_turns, median_of, show, timed
from .page import fill
from .sample import ATTEMPT, HOST, batches, freeze, make_ack, participants

MANY, FEW = "many", "few"
SMALL = 100
PAIRS = 15
COUNTING = "checkpoint in flight"  # each look counts all participants, of which there are fifty times as many
VIEWS = {
    "overview": "/api/pipelines/{pipeline}",
    "history, newest page": "/api/pipelines/{pipeline}/checkpoints",
    "history, page in the middle": "/api/pipelines/{pipeline}/checkpoints?before={middle}",
    "history, only failed": "/api/pipelines/{pipeline}/checkpoints?phase=FAILED",
    "history, only savepoints": "/api/pipelines/{pipeline}/checkpoints?kind=savepoint",
    "trends of the last 50": "/api/pipelines/{pipeline}/trends?last=50",
    "attempts": "/api/pipelines/{pipeline}/attempts",
    "events": "/api/pipelines/{pipeline}/events",
    COUNTING: "/api/pipelines/{pipeline}/checkpoints/{flying}",
    "its stragglers": "/api/pipelines/{pipeline}/checkpoints/{flying}/participants",
}


def bench(servers: Servers, sizes: Sizes, say: Say) -> list[Line]:
    make_tables()
    return [line for kind in ("SQLite", "PostgreSQL") for line in _compare(servers, kind, sizes, say)]


def _compare(servers: Servers, kind: str, sizes: Sizes, say: Say) -> Iterator[Line]:
    store, rows, members = servers.fresh(kind).open(), max(sizes.rows), max(sizes.partitions)
    flying = {MANY: make_history(store, MANY, rows, members), FEW: make_history(store, FEW, SMALL, SMALL)}
    ask = _asker(store)
    for name, path in VIEWS.items():
        large, small = (
            partial(ask.get, path.format(pipeline=each, middle=count // 2, flying=flying[each].id))
            for each, count in ((MANY, rows), (FEW, SMALL))
        )
        large(), small()  # connected and compiled
        pairs = in_turns(partial(timed, large), partial(timed, small), PAIRS)
        say(f"{kind}: {name}: {show(median_of(pairs.ours))}, of the small one {show(median_of(pairs.theirs))}")
        yield Line(
            what=f"{name}, {rows:,} checkpoints, {members:,} participants, {kind}",
            ours=show(median_of(pairs.ours)),
            against=f"{SMALL} of each, {show(median_of(pairs.theirs))}",
            ratio=pairs.slowness,
            goal=Goal(most=3 if name == COUNTING else 2),
        )


def _asker(store: Metastore) -> Client:
    app = make_app()
    app.dependency_overrides[opened] = lambda: Context(store=store, storage=MemoryStorage(), actor="bench")
    return program(app, ADA)


def make_history(store: Metastore, pipeline: str, rows: int, members: int) -> Ref:
    """A long history, and a checkpoint in flight that all but ten have acknowledged."""
    fill(store, pipeline, rows)
    with store.engine.write() as tx:
        tx.connection.execute(
            sa.update(checkpoints)
            .where(checkpoints.c.pipeline == pipeline, checkpoints.c.id == 1)
            .values(phase=Phase.DISCARDED, ended_at=tx.now_sql)
        )
        tx.connection.execute(sa.update(pipelines).where(pipelines.c.name == pipeline).values(next_checkpoint=rows + 1))
        for kind in ("triggered", "frozen", "decided", "completed"):
            tx.connection.execute(_events(pipeline, f"checkpoint.{kind}"))
    names = participants(members)
    ref = freeze(store, pipeline, names)
    for batch in batches([make_ack(name, ref) for name in names[:-10]], 100):
        store.acks.acknowledge(ref, ATTEMPT, batch, host=HOST)
    with store.engine.write() as tx:
        for table in ("ckpt_acks", "ckpt_events"):
            tx.connection.exec_driver_sql(f"ANALYZE {table}")  # as autovacuum does within a minute
    return ref


def _events(pipeline: str, kind: str) -> sa.Insert:
    """One event of each checkpoint of the pipeline."""
    said = sa.select(
        checkpoints.c.pipeline,
        checkpoints.c.triggered_at,
        sa.literal(kind),
        checkpoints.c.id,
        sa.literal("bench"),
        sa.literal(""),
        sa.literal({}, events.c.detail.type),
    ).where(checkpoints.c.pipeline == pipeline)
    return sa.insert(events).from_select(["pipeline", "at", "kind", "checkpoint", "actor", "reason", "detail"], said)
