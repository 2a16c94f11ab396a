"""The phases of checkpoints as compare-and-sets, and the pages that people and programs read.

Whoever loses a race learns it from the result; nothing depends on a process staying alive.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import TypeAlias

import sqlalchemy as sa

from airflow_provider_ckpt.metastore import guards
from airflow_provider_ckpt.metastore.engine import Engine, Tx, clean
from airflow_provider_ckpt.metastore.failing import fail_checkpoint, late_recently
from airflow_provider_ckpt.metastore.pipelines import bump_revision, lock_pipeline
from airflow_provider_ckpt.metastore.rows import checkpoint_of
from airflow_provider_ckpt.metastore.schema import acks, checkpoints, cuts, evidence, sink_commits
from airflow_provider_ckpt.protocol.errors import NotFound
from airflow_provider_ckpt.protocol.phases import IN_FLIGHT, UNDECIDED, Phase
from airflow_provider_ckpt.protocol.pledge import has_nothing
from airflow_provider_ckpt.protocol.reasons import FailureReason
from airflow_provider_ckpt.protocol.records import (
    AckStatus,
    Checkpoint,
    Decision,
    Kind,
    Lease,
    ParticipantKind,
    Ref,
    SinkStatus,
    Verdict,
)

_CHUNK = 500  # bound parameters are limited
_Select: TypeAlias = sa.Select[*tuple[object, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A bounded piece of the history, newest first."""

    checkpoints: tuple[Checkpoint, ...]
    next_before: int | None  # hand it in as `before` for the next page


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """What one checkpoint took, and what became of it: a few columns of a long history."""

    id: int
    attempt: int
    phase: Phase
    kind: Kind
    triggered_at: datetime
    ended_at: datetime | None
    new_bytes: int | None
    full_bytes: int | None
    failure_reason: FailureReason | None


class Checkpoints:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    # reading

    def get(self, ref: Ref) -> Checkpoint:
        with self._engine.read() as tx:
            return read_checkpoint(tx, ref)

    def find_savepoint(self, pipeline: str, name: str) -> Checkpoint | None:
        """The newest savepoint of that name that has not failed or gone."""
        gone = (Phase.FAILED, Phase.DISCARDED)
        with self._engine.read() as tx:
            return _newest(tx, pipeline, checkpoints.c.name == name, checkpoints.c.phase.not_in(gone))

    def find_triggered(self, pipeline: str, key: str) -> Checkpoint | None:
        """The newest checkpoint that a trigger with this key has led to."""
        with self._engine.read() as tx:
            return _newest(tx, pipeline, checkpoints.c.trigger_key == key)

    def in_flight(self, pipeline: str) -> Checkpoint | None:
        with self._engine.read() as tx:
            return read_in_flight(tx, pipeline)

    def some(self, pipeline: str, ids: Collection[int]) -> dict[int, Checkpoint]:
        """Those of the checkpoints that exist, by id."""
        wanted = sorted(ids)
        chunks = (wanted[start : start + _CHUNK] for start in range(0, len(wanted), _CHUNK))
        return {each.ref.id: each for chunk in chunks for each in self._select(pipeline, checkpoints.c.id.in_(chunk))}

    def now(self) -> datetime:
        """What the store's clock says."""
        with self._engine.read() as tx:
            return tx.now()

    def page(
        self,
        pipeline: str,
        *,
        before: int | None = None,
        limit: int = 20,
        phases: frozenset[Phase] = frozenset(),
        kind: Kind | None = None,
        attempt: int | None = None,
    ) -> Page:
        """The newest `limit` checkpoints below id `before`; however long the history, it reads a page of each phase."""
        statement = sa.select(checkpoints).where(checkpoints.c.pipeline == pipeline)
        if before is not None:
            statement = statement.where(checkpoints.c.id < before)
        if attempt is not None:
            statement = statement.where(checkpoints.c.attempt == attempt)
        if kind is not None:
            statement = statement.where(_is_of(kind, pipeline))
        with self._engine.read() as tx:
            rows = tx.connection.execute(_newest_of(statement, limit + 1, phases)).mappings()
            found = [checkpoint_of(row) for row in rows]
        shown = tuple(found[:limit])
        return Page(checkpoints=shown, next_before=shown[-1].ref.id if len(found) > limit else None)

    def measures(self, pipeline: str, *, limit: int) -> list[Measure]:
        """Of the newest `limit` checkpoints what each took, oldest first."""
        columns = [checkpoints.c[name] for name in _MEASURED]
        statement = sa.select(*columns).where(checkpoints.c.pipeline == pipeline)
        with self._engine.read() as tx:
            rows = tx.connection.execute(statement.order_by(checkpoints.c.id.desc()).limit(limit)).mappings().all()
        return [_measure_of(row) for row in reversed(rows)]

    def counts(self, pipeline: str, *, limit: int) -> Counter[Phase]:
        """Of the newest `limit` checkpoints, how many are in which phase."""
        newest = sa.select(checkpoints.c.phase).where(checkpoints.c.pipeline == pipeline)
        each = newest.order_by(checkpoints.c.id.desc()).limit(limit).subquery()
        statement = sa.select(each.c.phase, sa.func.count().label("number")).group_by(each.c.phase)
        with self._engine.read() as tx:
            return Counter({Phase(row.phase): row.number for row in tx.connection.execute(statement)})

    def measure(self, ref: Ref) -> Measure | None:
        """What one took; None when it does not exist."""
        statement = sa.select(*(checkpoints.c[name] for name in _MEASURED)).where(guards.is_checkpoint(ref))
        with self._engine.read() as tx:
            row = tx.connection.execute(statement).mappings().first()
        return None if row is None else _measure_of(row)

    def late_before(self, ref: Ref) -> list[tuple[str, ...]]:
        """For each of the checkpoints just before this one, who was last or missing there."""
        with self._engine.read() as tx:
            return late_recently(tx, ref)

    def failures_in_a_row(self, pipeline: str, *, limit: int = 100) -> int:
        """How many counted failures there were since the newest completed checkpoint."""
        ended = self.page(pipeline, limit=limit, phases=frozenset(Phase) - IN_FLIGHT).checkpoints
        count = 0
        for checkpoint in ended:
            if checkpoint.failure is None:
                break
            count += checkpoint.failure.reason.counts
        return count

    # changing

    def decide(self, ref: Ref, decision: Decision, *, actor: str) -> bool:
        """IN_PROGRESS → COMMITTING, the decision: only when all have acknowledged and the attempt is current."""
        with self._engine.write() as tx:
            lock_pipeline(tx, ref.pipeline)
            decided = _advance(
                tx,
                ref,
                Phase.COMMITTING,
                guards.attempt_is_current(),
                guards.nobody_pending(),
                manifest_path=decision.manifest_path,
                manifest_sha256=decision.manifest_sha256,
                new_bytes=decision.new_bytes,
                full_bytes=decision.full_bytes,
                new_files=decision.new_files,
                full_files=decision.full_files,
                decided_at=tx.now_sql,
                last_participant=_last_to_acknowledge(ref),
            )
            if decided:
                _expect_sink_commits(tx, ref)
                tx.record("checkpoint.decided", ref.pipeline, checkpoint=ref.id, actor=actor)
            return decided

    def complete(self, ref: Ref, *, actor: str) -> bool:
        """COMMITTING → COMPLETED: only when every sink has committed or was given up by a person."""
        with self._engine.write() as tx:
            lock_pipeline(tx, ref.pipeline)
            completed = _advance(tx, ref, Phase.COMPLETED, guards.every_sink_done(), ended_at=tx.now_sql)
            if completed:
                bump_revision(tx, ref.pipeline)
                tx.record("checkpoint.completed", ref.pipeline, checkpoint=ref.id, actor=actor)
            return completed

    def fail(self, ref: Ref, reason: FailureReason, message: str, *, actor: str) -> bool:
        """Fail a checkpoint that is not decided yet; False when it is too late for that."""
        with self._engine.write() as tx:
            lock_pipeline(tx, ref.pipeline)
            return fail_checkpoint(tx, ref, reason, message, actor=actor)

    def fail_overdue(self, pipeline: str, *, actor: str) -> Checkpoint | None:
        """Fail the undecided checkpoint whose deadline has passed by the store's clock, if there is one."""
        with self._engine.write() as tx:
            lock_pipeline(tx, pipeline)
            return expire(tx, pipeline, actor=actor)

    def judge(self, ref: Ref, verdict: Verdict, detail: str, *, actor: str) -> None:
        """Note what a verification or a restore found; what builds on a corrupt one and is not decided has failed."""
        with self._engine.write() as tx:
            lock_pipeline(tx, ref.pipeline)
            tx.connection.execute(
                sa.update(checkpoints)
                .where(guards.is_checkpoint(ref))
                .values(verdict=verdict, verdict_detail=clean(detail), verdict_at=tx.now_sql)
            )
            if verdict is Verdict.CORRUPT:
                _fail_what_builds_on(tx, ref, actor=actor)
            bump_revision(tx, ref.pipeline)
            tx.record(f"checkpoint.{verdict}", ref.pipeline, checkpoint=ref.id, actor=actor, reason=detail)

    def discard(self, ids: Sequence[int], lease: Lease, *, revision: int, actor: str) -> tuple[int, ...]:
        """COMPLETED → DISCARDING: nobody can choose, pin or build on them from now on. Returns those that went.

        Only while the lease is held, nothing that the plan depends on has changed, and nobody has pinned them.
        """
        with self._engine.write() as tx:
            lock_pipeline(tx, lease.pipeline)
            guard = (
                guards.is_unpinned(),
                guards.has_revision(lease.pipeline, revision),
                guards.holds(tx, lease),
            )
            refs = (Ref(lease.pipeline, id_) for id_ in ids)
            gone = tuple(ref.id for ref in refs if _advance(tx, ref, Phase.DISCARDING, *guard))
            for id_ in gone:
                tx.record("checkpoint.condemned", lease.pipeline, checkpoint=id_, actor=actor)
            return gone

    def forget(self, ref: Ref, *, actor: str) -> bool:
        """DISCARDING → DISCARDED, after its files are gone: what is known of its participants goes too."""
        with self._engine.write() as tx:
            lock_pipeline(tx, ref.pipeline)
            forgotten = _advance(tx, ref, Phase.DISCARDED)
            if forgotten:
                forget_participants(tx, ref)
                tx.record("checkpoint.discarded", ref.pipeline, checkpoint=ref.id, actor=actor)
            return forgotten

    def _select(self, pipeline: str, *conditions: sa.ColumnElement[bool]) -> list[Checkpoint]:
        statement = sa.select(checkpoints).where(checkpoints.c.pipeline == pipeline, *conditions)
        with self._engine.read() as tx:
            rows = tx.connection.execute(statement.order_by(checkpoints.c.id)).mappings()
            return [checkpoint_of(row) for row in rows]


def read_checkpoint(tx: Tx, ref: Ref) -> Checkpoint:
    row = tx.connection.execute(sa.select(checkpoints).where(guards.is_checkpoint(ref))).mappings().first()
    if row is None:
        raise NotFound(f"There is no checkpoint {ref}. `ckpt list {ref.pipeline}` lists what there is.")
    return checkpoint_of(row)


def read_in_flight(tx: Tx, pipeline: str) -> Checkpoint | None:
    return _newest(tx, pipeline, guards.in_phase(*IN_FLIGHT))


def read_bases(tx: Tx, pipeline: str) -> frozenset[int]:
    """The checkpoints that the one in flight builds on: cleanup leaves their files alone."""
    flying = read_in_flight(tx, pipeline)
    if flying is None:
        return frozenset()
    rows = tx.connection.execute(sa.select(cuts.c.bases).where(guards.is_cut(flying.ref))).scalars()
    return frozenset(base for bases in rows for base in bases)


def expire(tx: Tx, pipeline: str, *, actor: str) -> Checkpoint | None:
    """Under the pipeline's lock: fail what is overdue."""
    overdue = _newest(tx, pipeline, guards.in_phase(*UNDECIDED), checkpoints.c.deadline <= tx.now_sql)
    if overdue is None:
        return None
    message = f"it was not decided by {overdue.deadline:%Y-%m-%d %H:%M:%S} UTC"
    fail_checkpoint(tx, overdue.ref, FailureReason.TIMED_OUT, message, actor=actor)
    return read_checkpoint(tx, overdue.ref)


_MEASURED = tuple(each.name for each in fields(Measure))


def _measure_of(row: sa.RowMapping) -> Measure:
    reason = row["failure_reason"]
    parsed = {
        "phase": Phase(row["phase"]),
        "kind": Kind(row["kind"]),
        "failure_reason": reason and FailureReason(reason),
    }
    return Measure(**{**row, **parsed})


def forget_participants(tx: Tx, ref: Ref) -> None:
    for table in (acks, cuts, evidence, sink_commits):
        tx.connection.execute(sa.delete(table).where(table.c.pipeline == ref.pipeline, table.c.checkpoint == ref.id))


def _fail_what_builds_on(tx: Tx, base: Ref, *, actor: str) -> None:
    flying = read_in_flight(tx, base.pipeline)
    if flying is not None and base.id in read_bases(tx, base.pipeline):
        message = f"it builds on {base}, which was found to be corrupt; the next one copies everything anew"
        fail_checkpoint(tx, flying.ref, FailureReason.BASE_CORRUPT, message, actor=actor)


def _newest(tx: Tx, pipeline: str, *conditions: sa.ColumnElement[bool]) -> Checkpoint | None:
    statement = sa.select(checkpoints).where(checkpoints.c.pipeline == pipeline, *conditions)
    row = tx.connection.execute(statement.order_by(checkpoints.c.id.desc()).limit(1)).mappings().first()
    return None if row is None else checkpoint_of(row)


def _newest_of(statement: _Select, limit: int, phases: Collection[Phase]) -> _Select:
    """The first rows by id; of several phases each apart, as a filter by all would walk through the whole history."""
    if len(phases) <= 1:
        conditions = [guards.in_phase(*phases)] if phases else []
        return statement.where(*conditions).order_by(checkpoints.c.id.desc()).limit(limit)
    apart = [_newest_of(statement, limit, {phase}).subquery() for phase in sorted(phases)]
    together = sa.union_all(*map(sa.select, apart)).subquery()
    return sa.select(together).order_by(together.c.id.desc()).limit(limit)


def _is_of(kind: Kind, pipeline: str) -> sa.ColumnElement[bool]:
    """Savepoints are rare among many: they are found by their names, which have an index."""
    if kind is Kind.CHECKPOINT:
        return checkpoints.c.name.is_(None)
    other = checkpoints.alias()
    return checkpoints.c.id.in_(sa.select(other.c.id).where(other.c.pipeline == pipeline, other.c.name > ""))


def _advance(tx: Tx, ref: Ref, to: Phase, *conditions: sa.ColumnElement[bool], **values: object) -> bool:
    """The compare-and-set: to a phase that the table allows from where it is, if the conditions hold."""
    allowed = (guards.is_checkpoint(ref), guards.may_become(to), *conditions)
    changed = tx.connection.execute(sa.update(checkpoints).where(*allowed).values(phase=to, **values))
    return changed.rowcount == 1


def _last_to_acknowledge(ref: Ref) -> sa.ScalarSelect[str]:
    by_time = (
        sa.select(acks.c.participant).where(guards.is_ack(ref)).order_by(acks.c.acked_at.desc(), acks.c.participant)
    )
    return by_time.limit(1).scalar_subquery()


def _expect_sink_commits(tx: Tx, ref: Ref) -> None:
    sinks = sa.select(acks.c.participant, acks.c.ack).where(
        guards.is_ack(ref), acks.c.kind == ParticipantKind.SINK, acks.c.status == AckStatus.ACKED
    )
    rows = [
        {
            "pipeline": ref.pipeline,
            "checkpoint": ref.id,
            "sink": sink,
            "status": SinkStatus.NOTHING if has_nothing(ack["staged"]) else SinkStatus.PENDING,
            "staged": ack["staged"],
            "tries": 0,
            "published": {"rows": 0} if has_nothing(ack["staged"]) else None,
        }
        for sink, ack in tx.connection.execute(sinks)
    ]
    if rows:
        tx.connection.execute(sa.insert(sink_commits), rows)
