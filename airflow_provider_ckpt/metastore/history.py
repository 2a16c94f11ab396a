"""The history is trimmed in small batches, so that a metastore stays as large as it is.

Events go after `keep_events`, what a person did after `keep_audit`; rows of failed and discarded checkpoints, and
acknowledgements that changed nothing, after `keep_events`; attempts when they are not among the newest and no
checkpoint that is left was taken by them. Never trimmed: the newest event of each kind, which many ask for; the events
of checkpoints and attempts that are left; the rows of any checkpoint that is not failed or discarded.
"""

from datetime import datetime

import sqlalchemy as sa

from airflow_provider_ckpt.metastore import guards
from airflow_provider_ckpt.metastore.checkpoints import forget_participants, read_bases
from airflow_provider_ckpt.metastore.engine import Engine, Tx
from airflow_provider_ckpt.metastore.pipelines import lock_pipeline
from airflow_provider_ckpt.metastore.schema import attempts, checkpoints, events, evidence, pipelines
from airflow_provider_ckpt.protocol.errors import LeaseLost
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.records import ALIVE, AUDITED, Lease, Pipeline, Ref, Rung
from airflow_provider_ckpt.protocol.restart import remembered_failures
from airflow_provider_ckpt.protocol.timeline import Link, thin_out

_KEPT_ATTEMPTS = 100  # of the newest, whatever became of them
_PAST = (Phase.DISCARDED, Phase.FAILED)


class History:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def trim(self, lease: Lease, *, limit: int = 500) -> int:
        """Let one batch go, `limit` rows of each table at most; how many rows went.

        :raises LeaseLost: when the cleanup has to give way.
        """
        with self._engine.write() as tx:
            pipeline = lock_pipeline(tx, lease.pipeline)
            if not tx.connection.execute(sa.select(guards.holds(tx, lease))).scalar_one():
                raise LeaseLost(f"The {lease.kind} of pipeline {lease.pipeline} by {lease.owner} has lost its lease.")
            now = tx.now()
            _sweep_failed(tx, pipeline, now, limit)
            return (
                _trim_checkpoints(tx, pipeline, now, limit)
                + _trim_attempts(tx, pipeline, limit)
                + _trim_evidence(tx, pipeline, now, limit)
                + _trim_events(tx, pipeline, now, limit)
            )


def _sweep_failed(tx: Tx, pipeline: Pipeline, now: datetime, limit: int) -> None:
    """Failed checkpoints that left no files: a survey of the storage never comes across them."""
    bases = read_bases(tx, pipeline.name)
    failed = (
        sa.select(checkpoints.c.id)
        .where(checkpoints.c.pipeline == pipeline.name, checkpoints.c.phase == Phase.FAILED)
        .where(checkpoints.c.swept_at.is_(None), checkpoints.c.ended_at < now - pipeline.settings.orphan_grace)
    )
    for id_ in tx.connection.execute(failed.order_by(checkpoints.c.id).limit(limit)).scalars().all():
        if id_ not in bases:
            ref = Ref(pipeline.name, id_)
            forget_participants(tx, ref)
            swept = sa.update(checkpoints).where(guards.is_checkpoint(ref), guards.in_phase(Phase.FAILED))
            tx.connection.execute(swept.values(swept_at=now))


def _trim_checkpoints(tx: Tx, pipeline: Pipeline, now: datetime, limit: int) -> int:
    """Oldest first, phase by phase, as the index has them."""
    return sum(_trim_phase(tx, pipeline, phase, now - pipeline.settings.keep_events, limit) for phase in _PAST)


def _trim_phase(tx: Tx, pipeline: Pipeline, phase: Phase, before: datetime, limit: int) -> int:
    oldest = (
        sa.select(checkpoints.c.id, checkpoints.c.triggered_at, checkpoints.c.ended_at, checkpoints.c.swept_at)
        .where(checkpoints.c.pipeline == pipeline.name, checkpoints.c.phase == phase)
        .order_by(checkpoints.c.id)
        .limit(limit)
    )
    rows = tx.connection.execute(oldest).all()
    old = [row for row in rows if (row.ended_at or row.triggered_at) < before]
    gone = [row.id for row in old if phase is not Phase.FAILED or row.swept_at is not None]
    for id_ in gone:
        tx.connection.execute(sa.delete(checkpoints).where(guards.is_checkpoint(Ref(pipeline.name, id_))))
    return len(gone)


def _trim_attempts(tx: Tx, pipeline: Pipeline, limit: int) -> int:
    keep = max(_KEPT_ATTEMPTS, remembered_failures(pipeline.settings.restart))
    gone, changed = thin_out(_links(tx, pipeline.name), keep=keep, limit=limit)
    for link in changed:
        moved = sa.update(attempts).where(attempts.c.pipeline == pipeline.name, attempts.c.number == link.number)
        tx.connection.execute(moved.values(parent=link.parent, fork_at=link.fork_at))
    if gone:
        doomed = sa.delete(attempts).where(attempts.c.pipeline == pipeline.name, attempts.c.number.in_(gone))
        tx.connection.execute(doomed)
    return len(gone)


def _links(tx: Tx, pipeline: str) -> list[Link]:
    """All attempts, oldest first, without what makes them large."""
    has_checkpoints = sa.exists().where(
        checkpoints.c.pipeline == pipeline,
        checkpoints.c.attempt == attempts.c.number,
        checkpoints.c.phase.not_in(_PAST),
    )
    ran = sa.and_(attempts.c.graph.is_not(None), sa.cast(attempts.c.graph, sa.Text) != "[]")
    columns = (attempts.c.number, attempts.c.parent, attempts.c.fork_at, attempts.c.status, attempts.c.rung)
    statement = sa.select(*columns, has_checkpoints.label("needed"), ran.label("ran"))
    rows = tx.connection.execute(statement.where(attempts.c.pipeline == pipeline).order_by(attempts.c.number))
    return [
        Link(
            number=row.number,
            parent=row.parent,
            fork_at=row.fork_at,
            is_needed=bool(row.needed) or row.status in ALIVE,
            needs_parent=row.rung == Rung.TIP and not row.ran,
        )
        for row in rows
    ]


def _trim_evidence(tx: Tx, pipeline: Pipeline, now: datetime, limit: int) -> int:
    old = (
        sa.select(evidence.c.seq)
        .where(evidence.c.pipeline == pipeline.name, evidence.c.received_at < now - pipeline.settings.keep_events)
        .order_by(evidence.c.received_at)
        .limit(limit)
    )
    return tx.connection.execute(sa.delete(evidence).where(evidence.c.seq.in_(old.scalar_subquery()))).rowcount


def _trim_events(tx: Tx, pipeline: Pipeline, now: datetime, limit: int) -> int:
    kept, audited = pipeline.settings.keep_events, max(pipeline.settings.keep_events, pipeline.settings.keep_audit)
    old = (
        sa.select(events.c.seq)
        .where(events.c.pipeline == pipeline.name, events.c.at < now - kept)
        .where(sa.or_(events.c.kind.not_in(sorted(AUDITED)), events.c.at < now - audited))
        .where(events.c.seq.not_in(_newest_of_each_kind(tx, pipeline.name)), ~_is_about_what_is_left())
        .order_by(events.c.seq)
        .limit(limit)
    )
    gone = list(tx.connection.execute(old).scalars())
    if gone:
        row = sa.update(pipelines).where(pipelines.c.name == pipeline.name, pipelines.c.trimmed_upto < gone[-1])
        tx.connection.execute(row.values(trimmed_upto=gone[-1]))
        tx.connection.execute(sa.delete(events).where(events.c.seq.in_(gone)))
    return len(gone)


def _newest_of_each_kind(tx: Tx, pipeline: str) -> list[int]:
    """From kind to kind through the index: however many events there are, it reads a few for each."""
    of_pipeline = events.c.pipeline == pipeline
    kinds = sa.select(sa.func.min(events.c.kind).label("kind")).where(of_pipeline).cte("kinds", recursive=True)
    following = sa.select(sa.func.min(events.c.kind)).where(of_pipeline, events.c.kind > kinds.c.kind)
    kinds = kinds.union_all(sa.select(following.correlate(kinds).scalar_subquery()).where(kinds.c.kind.is_not(None)))
    newest = sa.select(sa.func.max(events.c.seq)).where(of_pipeline, events.c.kind == kinds.c.kind)
    statement = sa.select(newest.correlate(kinds).scalar_subquery()).where(kinds.c.kind.is_not(None))
    return list(tx.connection.execute(statement).scalars())


def _is_about_what_is_left() -> sa.ColumnElement[bool]:
    return sa.or_(
        sa.exists().where(
            checkpoints.c.pipeline == events.c.pipeline,
            checkpoints.c.id == events.c.checkpoint,
            checkpoints.c.phase.not_in(_PAST),
        ),
        sa.and_(
            events.c.kind.startswith("attempt."),
            sa.exists().where(attempts.c.pipeline == events.c.pipeline, attempts.c.number == events.c.attempt),
        ),
    )
