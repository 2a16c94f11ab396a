"""What belongs together, read together: each view is one transaction, so its parts are of one moment."""

from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from airflow_provider_ckpt.metastore import guards
from airflow_provider_ckpt.metastore.attempts import read_graph
from airflow_provider_ckpt.metastore.barriers import read_cuts
from airflow_provider_ckpt.metastore.checkpoints import read_bases, read_checkpoint
from airflow_provider_ckpt.metastore.engine import Engine, Tx
from airflow_provider_ckpt.metastore.pipelines import read_pipeline
from airflow_provider_ckpt.metastore.rows import ack_row_of, attempt_of, checkpoint_of
from airflow_provider_ckpt.metastore.schema import acks, attempts, checkpoints, pins, sink_commits
from airflow_provider_ckpt.protocol.cut import Graph
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.pledge import stands_at
from airflow_provider_ckpt.protocol.records import AckRow, Attempt, Checkpoint, Cut, Pipeline, Ref, SinkStatus

_RETAINED = (Phase.COMMITTING, Phase.COMPLETED, Phase.DISCARDING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dossier:
    """Everything that a manifest is made of."""

    checkpoint: Checkpoint
    attempts: tuple[Attempt, ...]
    graph: Graph
    cuts: tuple[Cut, ...]
    rows: tuple[AckRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """Everything that retention and restore choose from."""

    pipeline: Pipeline
    now: datetime
    attempts: tuple[Attempt, ...]
    retained: tuple[Checkpoint, ...]  # COMMITTING, COMPLETED, DISCARDING; oldest first
    pinned: frozenset[int]
    bases: frozenset[int]  # what the checkpoint in flight builds on
    published: dict[str, int]  # for each sink the newest checkpoint that the store knows to be committed
    stands: dict[int, dict[str, int]]  # by checkpoint: sinks that committed nothing, and where their target is then


class Views:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def dossier(self, ref: Ref) -> Dossier:
        with self._engine.read() as tx:
            checkpoint = read_checkpoint(tx, ref)
            rows = tx.connection.execute(sa.select(acks).where(guards.is_ack(ref)).order_by(acks.c.participant))
            return Dossier(
                checkpoint=checkpoint,
                attempts=_attempts(tx, ref.pipeline),
                graph=read_graph(tx, ref.pipeline, checkpoint.attempt),
                cuts=tuple(read_cuts(tx, ref).values()),
                rows=tuple(ack_row_of(row) for row in rows.mappings()),
            )

    def inventory(self, pipeline: str) -> Inventory:
        with self._engine.read() as tx:
            return Inventory(
                pipeline=read_pipeline(tx, pipeline),
                now=tx.now(),
                attempts=_attempts(tx, pipeline),
                retained=_retained(tx, pipeline),
                pinned=_pinned(tx, pipeline),
                bases=read_bases(tx, pipeline),
                published=_published(tx, pipeline),
                stands=_stands(tx, pipeline),
            )


def _attempts(tx: Tx, pipeline: str) -> tuple[Attempt, ...]:
    statement = sa.select(attempts).where(attempts.c.pipeline == pipeline).order_by(attempts.c.number)
    return tuple(attempt_of(row) for row in tx.connection.execute(statement).mappings())


def _retained(tx: Tx, pipeline: str) -> tuple[Checkpoint, ...]:
    """Each phase apart, as a filter by all of them would walk through the whole history on SQLite."""
    found = [checkpoint for phase in _RETAINED for checkpoint in _in_phase(tx, pipeline, phase)]
    return tuple(sorted(found, key=lambda checkpoint: checkpoint.ref.id))


def _in_phase(tx: Tx, pipeline: str, phase: Phase) -> list[Checkpoint]:
    statement = sa.select(checkpoints).where(checkpoints.c.pipeline == pipeline, checkpoints.c.phase == phase)
    rows = tx.connection.execute(statement.order_by(checkpoints.c.id)).mappings()
    return [checkpoint_of(row) for row in rows]


def _pinned(tx: Tx, pipeline: str) -> frozenset[int]:
    return frozenset(tx.connection.execute(sa.select(pins.c.checkpoint).where(pins.c.pipeline == pipeline)).scalars())


def _published(tx: Tx, pipeline: str) -> dict[str, int]:
    statement = (
        sa.select(sink_commits.c.sink, sa.func.max(sink_commits.c.checkpoint).label("newest"))
        .where(sink_commits.c.pipeline == pipeline, sink_commits.c.status == SinkStatus.COMMITTED)
        .group_by(sink_commits.c.sink)
    )
    return {row.sink: row.newest for row in tx.connection.execute(statement)}


def _stands(tx: Tx, pipeline: str) -> dict[int, dict[str, int]]:
    statement = sa.select(sink_commits).where(
        sink_commits.c.pipeline == pipeline, sink_commits.c.status.in_([SinkStatus.NOTHING, SinkStatus.ABANDONED])
    )
    found: dict[int, dict[str, int]] = {}
    for row in tx.connection.execute(statement):
        stands = stands_at(row.checkpoint, row.staged, SinkStatus(row.status))
        found.setdefault(row.checkpoint, {})[row.sink] = stands
    return found
