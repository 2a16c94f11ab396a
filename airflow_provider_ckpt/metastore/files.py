"""Condemned files: the queue of what will be deleted.

A file is condemned in the store before it is deleted, and only while nothing has changed since the plan was drawn up.
Its row goes when the file is gone, so whatever could not be deleted is tried again by the next cleanup.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta

import sqlalchemy as sa

from airflow_provider_ckpt.metastore import guards
from airflow_provider_ckpt.metastore.checkpoints import forget_participants
from airflow_provider_ckpt.metastore.engine import Engine, Tx
from airflow_provider_ckpt.metastore.pipelines import lock_pipeline
from airflow_provider_ckpt.metastore.rows import condemned_of
from airflow_provider_ckpt.metastore.schema import checkpoints, condemned
from airflow_provider_ckpt.protocol.errors import LostRace
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.records import Condemned, Lease, Ref

_CHUNK = 500  # bound parameters are limited


class Files:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def condemn(
        self, whys: Mapping[str, str], lease: Lease, *, revision: int, after: timedelta, sweeps: Sequence[int] = ()
    ) -> None:
        """Queue files for deletion, `after` a while; nobody may build on the failed checkpoints in `sweeps` any more.

        :raises LostRace: when the lease is lost or the plan is out of date: plan again.
        """
        with self._engine.write() as tx:
            lock_pipeline(tx, lease.pipeline)
            valid = sa.select(sa.and_(guards.has_revision(lease.pipeline, revision), guards.holds(tx, lease)))
            if not tx.connection.execute(valid).scalar_one():
                raise LostRace(f"The cleanup of {lease.pipeline} was overtaken: its plan is out of date.")
            _insert_missing(tx, lease.pipeline, whys, after)
            for id_ in sweeps:
                _sweep(tx, Ref(lease.pipeline, id_))

    def forget(self, pipeline: str, paths: Sequence[str]) -> None:
        """Take files off the queue: they are gone, or a kept manifest names them after all."""
        with self._engine.write() as tx:
            for start in range(0, len(paths), _CHUNK):
                chunk = paths[start : start + _CHUNK]
                tx.connection.execute(
                    sa.delete(condemned).where(condemned.c.pipeline == pipeline, condemned.c.path.in_(chunk))
                )

    def condemned(self, pipeline: str) -> list[Condemned]:
        with self._engine.read() as tx:
            statement = sa.select(condemned).where(condemned.c.pipeline == pipeline).order_by(condemned.c.path)
            return [condemned_of(row) for row in tx.connection.execute(statement).mappings()]

    def due(self, pipeline: str) -> list[str]:
        """The condemned files whose time has come by the store's clock."""
        with self._engine.read() as tx:
            statement = sa.select(condemned.c.path).where(
                condemned.c.pipeline == pipeline, condemned.c.delete_after <= tx.now_sql
            )
            return list(tx.connection.execute(statement.order_by(condemned.c.path)).scalars())


def _insert_missing(tx: Tx, pipeline: str, whys: Mapping[str, str], after: timedelta) -> None:
    now = tx.now()
    there = set(tx.connection.execute(sa.select(condemned.c.path).where(condemned.c.pipeline == pipeline)).scalars())
    rows = [
        {"pipeline": pipeline, "path": path, "why": why, "condemned_at": now, "delete_after": now + after}
        for path, why in sorted(whys.items())
        if path not in there
    ]
    if rows:
        tx.connection.execute(sa.insert(condemned), rows)


def _sweep(tx: Tx, ref: Ref) -> None:
    swept = tx.connection.execute(
        sa.update(checkpoints)
        .where(guards.is_checkpoint(ref), guards.in_phase(Phase.FAILED), checkpoints.c.swept_at.is_(None))
        .values(swept_at=tx.now_sql)
    )
    if swept.rowcount == 1:
        forget_participants(tx, ref)
