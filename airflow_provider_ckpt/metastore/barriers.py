"""Barriers: starting a checkpoint, and the cuts by which its queries answer."""

from collections import Counter
from datetime import datetime

import sqlalchemy as sa

from airflow_provider_ckpt.metastore import guards
from airflow_provider_ckpt.metastore.attempts import read_attempt, read_graph
from airflow_provider_ckpt.metastore.checkpoints import expire, read_checkpoint, read_in_flight
from airflow_provider_ckpt.metastore.engine import Engine, Tx
from airflow_provider_ckpt.metastore.failing import fail_checkpoint
from airflow_provider_ckpt.metastore.leases import read_lease, revoke, shorten_leases
from airflow_provider_ckpt.metastore.pipelines import bump_revision, desire, has_started_since, lock_pipeline
from airflow_provider_ckpt.metastore.rows import (
    checkpoint_of,
    cut_of,
    participants_from_json,
    participants_to_json,
)
from airflow_provider_ckpt.metastore.schema import acks, checkpoints, cuts, pipelines
from airflow_provider_ckpt.protocol.cut import Graph, find_inconsistency
from airflow_provider_ckpt.protocol.errors import Misused
from airflow_provider_ckpt.protocol.manifest import consumed_to_json
from airflow_provider_ckpt.protocol.paths import check_name
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.reasons import CLEANUP_SKIPS, FailureReason
from airflow_provider_ckpt.protocol.records import (
    AckStatus,
    Capture,
    CaptureOutcome,
    Checkpoint,
    Cut,
    DesiredState,
    Kind,
    LeaseKind,
    Participant,
    Pipeline,
    Ref,
    Triggered,
    TriggerRequest,
)
from airflow_provider_ckpt.protocol.triggering import Situation, Skip, goes_before_cleanup, why_skip


class Barriers:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def trigger(self, request: TriggerRequest) -> Triggered:
        """Start a checkpoint, give back the one that this key has already, or skip with a reason."""
        if request.savepoint is not None:
            check_name("savepoint", request.savepoint)
        with self._engine.write() as tx:
            pipeline = lock_pipeline(tx, request.pipeline)
            last = _newest_with_key(tx, request)
            if last is not None and last.phase is not Phase.FAILED:
                return Triggered(checkpoint=last, is_new=False, skipped=None, detail="the same trigger as before")
            expire(tx, pipeline.name, actor=request.requested_by)
            seen = _look(tx, pipeline, request)
            if seen.cleanup is not None or seen.restore is not None:
                shorten_leases(tx, pipeline)
            if (skip := why_skip(request, seen)) is not None:
                return _skip(tx, request, skip)
            _refuse_taken_name(tx, request)
            _end_deferral(tx, request, seen)
            if request.then_stop:
                desire(tx, pipeline.name, DesiredState.STOPPED, actor=request.requested_by, reason=request.reason)
            return _start(tx, request, seen, retry_of=None if last is None else last.ref.id)

    def capture(self, ref: Ref, attempt: int, capture: Capture, *, host: str | None = None) -> CaptureOutcome:
        """Record a query's cut. With the last one membership freezes, in the same transaction.

        :raises Misused: for a query that the attempt does not have, or before its readers were captured.
        """
        with self._engine.write() as tx:
            lock_pipeline(tx, ref.pipeline)
            if (no := _why_not_captured(tx, ref, attempt, capture)) is not None:
                return no
            graph = read_graph(tx, ref.pipeline, attempt)
            _check_order(graph, ref, capture, read_cuts(tx, ref))
            _insert_cut(tx, ref, capture, host)
            bump_revision(tx, ref.pipeline)
            return _freeze_if_last(tx, ref, graph)

    def cuts(self, ref: Ref) -> dict[str, Cut]:
        with self._engine.read() as tx:
            return read_cuts(tx, ref)

    def captured_at(self, ref: Ref) -> dict[str, datetime]:
        """When each query reached its cut."""
        with self._engine.read() as tx:
            return _captured_at(tx, ref)


def _captured_at(tx: Tx, ref: Ref) -> dict[str, datetime]:
    rows = tx.connection.execute(sa.select(cuts.c.query, cuts.c.captured_at).where(guards.is_cut(ref)))
    return {row.query: row.captured_at for row in rows}


def read_cuts(tx: Tx, ref: Ref) -> dict[str, Cut]:
    rows = tx.connection.execute(sa.select(cuts).where(guards.is_cut(ref)).order_by(cuts.c.query)).mappings()
    return {row["query"]: cut_of(row) for row in rows}


# trigger


def _newest_with_key(tx: Tx, request: TriggerRequest) -> Checkpoint | None:
    statement = sa.select(checkpoints).where(
        checkpoints.c.pipeline == request.pipeline, checkpoints.c.trigger_key == request.key
    )
    row = tx.connection.execute(statement.order_by(checkpoints.c.id.desc()).limit(1)).mappings().first()
    return None if row is None else checkpoint_of(row)


def _look(tx: Tx, pipeline: Pipeline, request: TriggerRequest) -> Situation:
    newest = tx.connection.execute(
        sa.select(checkpoints.c.triggered_at, checkpoints.c.ended_at)
        .where(checkpoints.c.pipeline == pipeline.name)
        .order_by(checkpoints.c.id.desc())
        .limit(1)
    ).first()
    return Situation(
        pipeline=pipeline,
        attempt=read_attempt(tx, pipeline.name, pipeline.current_attempt),
        in_flight=read_in_flight(tx, pipeline.name),
        cleanup=read_lease(tx, pipeline.name, LeaseKind.CLEANUP),
        restore=read_lease(tx, pipeline.name, LeaseKind.RESTORE),
        last_triggered_at=newest.triggered_at if newest else None,
        last_ended_at=newest.ended_at if newest else None,
        now=tx.now(),
        is_started_again=has_started_since(tx, pipeline.name, request.since),
    )


def _skip(tx: Tx, request: TriggerRequest, skip: Skip) -> Triggered:
    if skip.reason in CLEANUP_SKIPS:
        since = sa.func.coalesce(pipelines.c.deferred_since, tx.now_sql)
        tx.connection.execute(
            sa.update(pipelines).where(pipelines.c.name == request.pipeline).values(deferred_since=since)
        )
    tx.record(
        "trigger.skipped",
        request.pipeline,
        actor=request.requested_by,
        reason=f"{skip.reason}: {skip.detail}",
        detail={"reason": skip.reason, "key": request.key},
    )
    return Triggered(checkpoint=None, is_new=False, skipped=skip.reason, detail=skip.detail)


def _refuse_taken_name(tx: Tx, request: TriggerRequest) -> None:
    if request.savepoint is None:
        return
    taken = tx.connection.execute(
        sa.select(checkpoints.c.id).where(
            checkpoints.c.pipeline == request.pipeline,
            checkpoints.c.name == request.savepoint,
            checkpoints.c.phase.not_in((Phase.FAILED, Phase.DISCARDING, Phase.DISCARDED)),
        )
    ).scalar()
    if taken is not None:
        raise Misused(
            f"Pipeline {request.pipeline} has a savepoint {request.savepoint!r} already: checkpoint {taken}. "
            "Choose another name."
        )


def _end_deferral(tx: Tx, request: TriggerRequest, seen: Situation) -> None:
    """The trigger goes ahead: a cleanup that kept it waiting too long gives way, one that waited must ask again."""
    if goes_before_cleanup(request, seen):
        reason = (
            "it is the last of an attempt" if request.is_last else "a checkpoint has waited for the maximum deferral"
        )
        revoke(tx, request.pipeline, LeaseKind.CLEANUP, actor=request.requested_by, reason=reason)
    tx.connection.execute(
        sa.update(pipelines)
        .where(pipelines.c.name == request.pipeline)
        .values(
            deferred_since=None,
            cleanup_waiting_since=None if goes_before_cleanup(request, seen) else pipelines.c.cleanup_waiting_since,
        )
    )


def _start(tx: Tx, request: TriggerRequest, seen: Situation, *, retry_of: int | None) -> Triggered:
    ref = Ref(request.pipeline, seen.pipeline.next_checkpoint)
    tx.connection.execute(
        sa.insert(checkpoints).values(
            pipeline=ref.pipeline,
            id=ref.id,
            attempt=seen.pipeline.current_attempt,
            phase=Phase.TRIGGERED,
            kind=request.kind,
            name=request.savepoint,
            trigger_key=request.key,
            retry_of=retry_of,
            requested_by=request.requested_by,
            reason=request.reason,
            triggered_at=seen.now,
            deadline=seen.now + seen.pipeline.settings.timeout,
        )
    )
    tx.connection.execute(
        sa.update(pipelines).where(pipelines.c.name == ref.pipeline).values(next_checkpoint=ref.id + 1)
    )
    tx.record(
        "checkpoint.triggered", ref.pipeline, checkpoint=ref.id, actor=request.requested_by, reason=request.reason
    )
    return Triggered(checkpoint=read_checkpoint(tx, ref), is_new=True, skipped=None, detail="")


# capture


def _why_not_captured(tx: Tx, ref: Ref, attempt: int, capture: Capture) -> CaptureOutcome | None:
    expire(tx, ref.pipeline, actor=f"attempt {attempt}")
    current = tx.connection.execute(sa.select(guards.actor_is_current(ref.pipeline, attempt))).scalar_one()
    if not current:
        return CaptureOutcome.FENCED
    if capture.cut.query in read_cuts(tx, ref):
        return CaptureOutcome.DUPLICATE
    checkpoint = read_checkpoint(tx, ref)
    if checkpoint.phase is not Phase.TRIGGERED or checkpoint.attempt != attempt:
        return CaptureOutcome.FAILED
    return None if _are_bases_safe(tx, ref.pipeline, capture.bases) else CaptureOutcome.BASE_GONE


def _are_bases_safe(tx: Tx, pipeline: str, bases: tuple[int, ...]) -> bool:
    """Whether every base is completed and not known to be corrupt, or failed with files that nobody has condemned.

    A savepoint has copies of its own and holds none of the files that it was made from: it is no base.
    """
    is_safe = sa.or_(
        sa.and_(guards.in_phase(Phase.COMPLETED), checkpoints.c.kind == Kind.CHECKPOINT, guards.is_not_corrupt()),
        sa.and_(guards.in_phase(Phase.FAILED), checkpoints.c.swept_at.is_(None)),
    )
    statement = sa.select(sa.func.count()).where(
        checkpoints.c.pipeline == pipeline, checkpoints.c.id.in_(bases), is_safe
    )
    return tx.connection.execute(statement).scalar_one() == len(set(bases))


def _check_order(graph: Graph, ref: Ref, capture: Capture, captured: dict[str, Cut]) -> None:
    query = capture.cut.query
    early = graph.missing_readers(query, captured)
    if early:
        raise Misused(
            f"Query {query} can not be captured for {ref} yet: its readers {', '.join(sorted(early))} come first."
        )


def _insert_cut(tx: Tx, ref: Ref, capture: Capture, host: str | None) -> None:
    tx.connection.execute(
        sa.insert(cuts).values(
            pipeline=ref.pipeline,
            checkpoint=ref.id,
            query=capture.cut.query,
            batch=capture.cut.batch,
            consumed=consumed_to_json(capture.cut.consumed),
            properties=capture.cut.properties,
            participants=participants_to_json(capture),
            bases=list(capture.bases),
            host=host,
            captured_at=tx.now_sql,
        )
    )


def _freeze_if_last(tx: Tx, ref: Ref, graph: Graph) -> CaptureOutcome:
    rows = tx.connection.execute(sa.select(cuts).where(guards.is_cut(ref))).mappings().all()
    if len(rows) < len(graph.queries):
        return CaptureOutcome.CAPTURED
    members = [(row["query"], each) for row in rows for each in participants_from_json(row["participants"])]
    if not members:
        return _fail(tx, ref, FailureReason.NO_PARTICIPANTS, "no query has anything to acknowledge")
    if (why := find_inconsistency({row["query"]: cut_of(row) for row in rows})) is not None:
        return _fail(tx, ref, FailureReason.INCONSISTENT_CUT, why)
    _freeze(tx, ref, members)
    return CaptureOutcome.FROZEN


def _freeze(tx: Tx, ref: Ref, members: list[tuple[str, Participant]]) -> None:
    twice = [name for name, count in Counter(participant.name for _, participant in members).items() if count > 1]
    if twice:
        raise Misused(f"Participants of {ref} need distinct names; given twice: {', '.join(twice[:5])}.")
    tx.connection.execute(
        sa.insert(acks),
        [
            {
                "pipeline": ref.pipeline,
                "checkpoint": ref.id,
                "participant": participant.name,
                "query": query,
                "kind": participant.kind,
                "status": AckStatus.PENDING,
                "stage": "captured",
            }
            for query, participant in members
        ],
    )
    tx.connection.execute(
        sa.update(checkpoints)
        .where(guards.is_checkpoint(ref), guards.may_become(Phase.IN_PROGRESS), guards.attempt_is_current())
        .values(phase=Phase.IN_PROGRESS, frozen_at=tx.now_sql, participants=len(members))
    )
    tx.record(
        "checkpoint.frozen", ref.pipeline, checkpoint=ref.id, actor="agent", detail={"participants": len(members)}
    )


def _fail(tx: Tx, ref: Ref, reason: FailureReason, message: str) -> CaptureOutcome:
    fail_checkpoint(tx, ref, reason, message, actor="agent")
    return CaptureOutcome.FAILED
