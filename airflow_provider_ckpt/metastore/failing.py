"""How a checkpoint fails: the compare-and-set, and the blame report that it leaves."""

import sqlalchemy as sa

from airflow_provider_ckpt.metastore import guards
from airflow_provider_ckpt.metastore.engine import Tx, clean
from airflow_provider_ckpt.metastore.schema import acks, attempts, checkpoints, cuts
from airflow_provider_ckpt.protocol.blame import NAMED, Missing, blame, describe, late_in
from airflow_provider_ckpt.protocol.codec import JsonObject
from airflow_provider_ckpt.protocol.cut import graph_from_json
from airflow_provider_ckpt.protocol.phases import IN_FLIGHT, Phase
from airflow_provider_ckpt.protocol.reasons import FailureReason
from airflow_provider_ckpt.protocol.records import AckStatus, Ref

_RECENT = 10


def fail_checkpoint(tx: Tx, ref: Ref, reason: FailureReason, message: str, *, actor: str) -> bool:
    """Under the pipeline's lock: UNDECIDED → FAILED with its blame report; False when it is decided or ended."""
    report = _report(tx, ref)
    failed = tx.connection.execute(
        sa.update(checkpoints)
        .where(guards.is_checkpoint(ref), guards.may_become(Phase.FAILED))
        .values(
            phase=Phase.FAILED,
            ended_at=tx.now_sql,
            failure_reason=reason,
            failure_message=clean(message),
            blame=report,
        )
    )
    if failed.rowcount == 1:
        why = f"{reason}: {message}; {describe(report)}"
        tx.record("checkpoint.failed", ref.pipeline, checkpoint=ref.id, actor=actor, reason=why, detail=report)
    return failed.rowcount == 1


def _report(tx: Tx, ref: Ref) -> JsonObject:
    missing, total = _missing_queries(tx, ref)
    if not missing:
        missing, total = _missing_participants(tx, ref)
    return blame(missing, total=total, late_before=late_recently(tx, ref))


def _missing_queries(tx: Tx, ref: Ref) -> tuple[list[Missing], int]:
    row = tx.connection.execute(
        sa.select(attempts.c.graph, attempts.c.host, checkpoints.c.triggered_at)
        .join_from(
            checkpoints,
            attempts,
            sa.and_(attempts.c.pipeline == checkpoints.c.pipeline, attempts.c.number == checkpoints.c.attempt),
        )
        .where(guards.is_checkpoint(ref), guards.in_phase(Phase.TRIGGERED))
    ).first()
    if row is None or row.graph is None:
        return [], 0
    captured = set(tx.connection.execute(sa.select(cuts.c.query).where(guards.is_cut(ref))).scalars())
    late = [name for name in graph_from_json(row.graph).capture_order() if name not in captured]
    return [Missing(name=name, stage="no cut", since=row.triggered_at, host=row.host) for name in late], len(late)


def _missing_participants(tx: Tx, ref: Ref) -> tuple[list[Missing], int]:
    is_missing = (guards.is_ack(ref), acks.c.status != AckStatus.ACKED)
    since = sa.func.coalesce(acks.c.stage_at, checkpoints.c.frozen_at)
    rows = tx.connection.execute(
        sa.select(acks.c.participant, acks.c.stage, acks.c.host, since.label("since"))
        .join(checkpoints, guards.is_checkpoint(ref))
        .where(*is_missing)
        .order_by(acks.c.participant)
        .limit(NAMED)
    )
    named = [Missing(name=row.participant, stage=row.stage, since=row.since, host=row.host) for row in rows]
    total = tx.connection.execute(sa.select(sa.func.count()).select_from(acks).where(*is_missing)).scalar_one()
    return named, total


def late_recently(tx: Tx, ref: Ref) -> list[tuple[str, ...]]:
    """For each of the checkpoints just before this one, who was last or missing there."""
    recent = tx.connection.execute(
        sa.select(checkpoints.c.last_participant, checkpoints.c.blame)
        .where(
            checkpoints.c.pipeline == ref.pipeline,
            checkpoints.c.id < ref.id,
            checkpoints.c.phase.not_in(sorted(IN_FLIGHT)),
        )
        .order_by(checkpoints.c.id.desc())
        .limit(_RECENT)
    )
    return [late_in(row.last_participant, row.blame) for row in recent]
