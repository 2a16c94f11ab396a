"""Leases and pins: the time-limited right to clean up or to restore, and holds that cleanup never passes.

Cleanup and triggering exclude each other here and in `checkpoints.trigger`, both under the pipeline's lock. Safety does
not rest on a lease: whoever wakes up late finds its compare-and-sets refused.
"""

import sqlalchemy as sa

from airflow_provider_ckpt.metastore import guards
from airflow_provider_ckpt.metastore.engine import Engine, Tx
from airflow_provider_ckpt.metastore.pipelines import bump_revision, lock_pipeline, read_pipeline
from airflow_provider_ckpt.metastore.rows import lease_of, pin_of
from airflow_provider_ckpt.metastore.schema import checkpoints, leases, pins, pipelines
from airflow_provider_ckpt.protocol.errors import LeaseLost, NotFound, TryAgain
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.records import Lease, LeaseKind, Pin, Pipeline, Ref


class Leases:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def acquire_cleanup(self, pipeline: str, *, owner: str, token: str) -> Lease:
        """Take the cleanup lease.

        :raises TryAgain: while a checkpoint is in flight, a restore or another cleanup works. The wait is noted:
            after `max_deferral` triggers let the cleanup go first.
        """
        with self._engine.write() as tx:
            found = lock_pipeline(tx, pipeline)
            if (why := _why_no_cleanup(tx, pipeline)) is None:
                _set_waiting(tx, pipeline, since=None)
                return _grant(tx, found, LeaseKind.CLEANUP, owner, token)
            shorten_leases(tx, found)
            _set_waiting(tx, pipeline, since=sa.func.coalesce(pipelines.c.cleanup_waiting_since, tx.now_sql))
        raise TryAgain(f"Pipeline {pipeline} can not be cleaned up now: {why}")

    def acquire_restore(self, pipeline: str, *, owner: str, token: str) -> Lease:
        """Take the restore lease; a cleanup gives way.

        :raises TryAgain: while another restore works.
        """
        with self._engine.write() as tx:
            found = lock_pipeline(tx, pipeline)
            held = read_lease(tx, pipeline, LeaseKind.RESTORE)
            if held is None:
                revoke(tx, pipeline, LeaseKind.CLEANUP, actor=owner, reason="a restore goes first")
                return _grant(tx, found, LeaseKind.RESTORE, owner, token)
            shorten_leases(tx, found)
        raise TryAgain(f"Pipeline {pipeline} can not be restored now: {_held_by(held)}")

    def renew(self, lease: Lease) -> Lease:
        """Extend a lease that is still held.

        :raises LeaseLost: when it expired or was taken back: stop between two files.
        """
        with self._engine.write() as tx:
            found = lock_pipeline(tx, lease.pipeline)
            extended = tx.connection.execute(
                sa.update(leases)
                .where(leases.c.pipeline == lease.pipeline, leases.c.kind == lease.kind, guards.holds(tx, lease))
                .values(expires_at=tx.now() + found.settings.lease_ttl)
                .returning(*leases.c)
            )
            row = extended.mappings().first()
        if row is None:
            raise LeaseLost(f"The {lease.kind} of pipeline {lease.pipeline} by {lease.owner} has lost its lease.")
        return lease_of(row)

    def release(self, lease: Lease) -> None:
        """Give a lease back; one that is lost already is fine."""
        with self._engine.write() as tx:
            tx.connection.execute(
                sa.delete(leases).where(leases.c.pipeline == lease.pipeline, leases.c.token == lease.token)
            )

    def break_(self, pipeline: str, kind: LeaseKind, *, actor: str, reason: str = "") -> bool:
        """Take a lease back by a person's wish; its holder learns it at its next step. False when nobody holds it."""
        with self._engine.write() as tx:
            lock_pipeline(tx, pipeline)
            if read_lease(tx, pipeline, kind) is None:
                return False
            why = f"broken by a person: {reason}" if reason else "broken by a person"
            revoke(tx, pipeline, kind, actor=actor, reason=why)
            return True

    def held(self, pipeline: str) -> list[Lease]:
        """Who works now; where the clock was set back, what is left of their time begins here."""
        with self._engine.read() as tx:
            latest = tx.now() + read_pipeline(tx, pipeline).settings.lease_ttl
            found = _read_leases(tx, pipeline)
        if all(lease.expires_at <= latest for lease in found):
            return found
        with self._engine.write() as tx:
            shorten_leases(tx, lock_pipeline(tx, pipeline))
            return _read_leases(tx, pipeline)


class Pins:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def add(self, ref: Ref, *, owner: str, reason: str) -> None:
        """Hold a completed checkpoint; a second pin by the same owner changes the reason.

        :raises NotFound: when there is no completed checkpoint of that id (any more).
        """
        with self._engine.write() as tx:
            lock_pipeline(tx, ref.pipeline)
            is_there = sa.select(checkpoints.c.id).where(guards.is_checkpoint(ref), guards.in_phase(Phase.COMPLETED))
            if tx.connection.execute(is_there).first() is None:
                raise NotFound(f"There is no completed checkpoint {ref} to pin. `ckpt list {ref.pipeline}` lists them.")
            tx.connection.execute(sa.delete(pins).where(_is_pin(ref, owner)))
            tx.connection.execute(
                sa.insert(pins).values(
                    pipeline=ref.pipeline, checkpoint=ref.id, owner=owner, reason=reason, pinned_at=tx.now_sql
                )
            )
            bump_revision(tx, ref.pipeline)
            tx.record("checkpoint.pinned", ref.pipeline, checkpoint=ref.id, actor=owner, reason=reason)

    def remove(self, ref: Ref, *, owner: str, actor: str) -> bool:
        """Lift a pin; False when there was none."""
        with self._engine.write() as tx:
            lock_pipeline(tx, ref.pipeline)
            removed = tx.connection.execute(sa.delete(pins).where(_is_pin(ref, owner))).rowcount > 0
            if removed:
                tx.record("checkpoint.unpinned", ref.pipeline, checkpoint=ref.id, actor=actor, reason=f"pin of {owner}")
            return removed

    def of(self, pipeline: str) -> list[Pin]:
        with self._engine.read() as tx:
            statement = sa.select(pins).where(pins.c.pipeline == pipeline).order_by(pins.c.checkpoint, pins.c.owner)
            return [pin_of(row) for row in tx.connection.execute(statement).mappings()]


def read_lease(tx: Tx, pipeline: str, kind: LeaseKind) -> Lease | None:
    """The lease, unless it has expired by the store's clock."""
    statement = sa.select(leases).where(
        leases.c.pipeline == pipeline, leases.c.kind == kind, leases.c.expires_at > tx.now_sql
    )
    row = tx.connection.execute(statement).mappings().first()
    return None if row is None else lease_of(row)


def _read_leases(tx: Tx, pipeline: str) -> list[Lease]:
    found = (read_lease(tx, pipeline, kind) for kind in LeaseKind)
    return [lease for lease in found if lease is not None]


def shorten_leases(tx: Tx, pipeline: Pipeline) -> None:
    """No lease lasts longer than its time to live from now: else a clock that was set back would keep it alive."""
    latest = tx.now() + pipeline.settings.lease_ttl
    tx.connection.execute(
        sa.update(leases)
        .where(leases.c.pipeline == pipeline.name, leases.c.expires_at > latest)
        .values(expires_at=latest)
    )


def revoke(tx: Tx, pipeline: str, kind: LeaseKind, *, actor: str, reason: str) -> None:
    """Take a lease back; its holder learns it at its next step."""
    gone = tx.connection.execute(
        sa.delete(leases).where(leases.c.pipeline == pipeline, leases.c.kind == kind).returning(leases.c.owner)
    ).first()
    if gone is not None:
        tx.record(f"{kind}.revoked", pipeline, actor=actor, reason=reason, detail={"owner": gone.owner})


def restore_owner(attempt: int) -> str:
    """Who pins a checkpoint while it is being restored."""
    return f"restore:{attempt}"


def unpin_restores(tx: Tx, pipeline: str) -> None:
    """Lift the pins of restores that did not live to do so themselves."""
    tx.connection.execute(sa.delete(pins).where(pins.c.pipeline == pipeline, pins.c.owner.startswith("restore:")))


def _why_no_cleanup(tx: Tx, pipeline: str) -> str | None:
    for kind in LeaseKind:
        if (held := read_lease(tx, pipeline, kind)) is not None:
            return _held_by(held)
    busy = tx.connection.execute(sa.select(guards.none_in_flight(pipeline))).scalar_one()
    return None if busy else "a checkpoint is in flight. Try again later."


def _held_by(lease: Lease) -> str:
    return (
        f"a {lease.kind} by {lease.owner} holds the lease. Wait for it, or until the lease ends; or, when it is dead "
        f"for certain, take its lease with `ckpt leases break {lease.pipeline} {lease.kind}`."
    )


def _grant(tx: Tx, pipeline: Pipeline, kind: LeaseKind, owner: str, token: str) -> Lease:
    now = tx.now()
    lease = Lease(
        pipeline=pipeline.name,
        kind=kind,
        owner=owner,
        token=token,
        acquired_at=now,
        expires_at=now + pipeline.settings.lease_ttl,
    )
    tx.connection.execute(sa.delete(leases).where(leases.c.pipeline == pipeline.name, leases.c.kind == kind))
    tx.connection.execute(
        sa.insert(leases).values(
            pipeline=pipeline.name,
            kind=kind,
            owner=owner,
            token=token,
            acquired_at=lease.acquired_at,
            expires_at=lease.expires_at,
        )
    )
    tx.record(f"{kind}.started", pipeline.name, actor=owner)
    return lease


def _set_waiting(tx: Tx, pipeline: str, since: object) -> None:
    tx.connection.execute(sa.update(pipelines).where(pipelines.c.name == pipeline).values(cleanup_waiting_since=since))


def _is_pin(ref: Ref, owner: str) -> sa.ColumnElement[bool]:
    return sa.and_(pins.c.pipeline == ref.pipeline, pins.c.checkpoint == ref.id, pins.c.owner == owner)
