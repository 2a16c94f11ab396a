"""The conditions under which a compare-and-set may change something.

Every UPDATE of a phase, a lease or a file's fate carries some of these in its WHERE clause; whoever changes no row has
lost the race. They are named so that a reader, and a test that drops one on purpose, can find each.
"""

from dataclasses import dataclass

import sqlalchemy as sa

from airflow_provider_ckpt.metastore.engine import Tx
from airflow_provider_ckpt.metastore.schema import acks, checkpoints, cuts, leases, pins, pipelines, sink_commits
from airflow_provider_ckpt.protocol.phases import IN_FLIGHT, Phase, sources_of
from airflow_provider_ckpt.protocol.records import SINK_DONE, AckStatus, Lease, Ref, Verdict

Condition = sa.ColumnElement[bool]


@dataclass(frozen=True, slots=True)
class LaterRef:
    """A checkpoint that is named when the statement runs: for a statement that is made once."""

    pipeline: sa.BindParameter[str]
    id: sa.BindParameter[int]


def is_checkpoint(ref: Ref | LaterRef) -> Condition:
    return sa.and_(checkpoints.c.pipeline == ref.pipeline, checkpoints.c.id == ref.id)


def in_phase(*phases: Phase) -> Condition:
    return checkpoints.c.phase.in_(sorted(phases))


def may_become(to: Phase) -> Condition:
    """The checkpoint is in a phase from which the table of transitions leads to `to`."""
    return in_phase(*sources_of(to))


def attempt_is_current() -> Condition:
    """The checkpoint belongs to the pipeline's current attempt: an older one can not harm."""
    return sa.exists().where(
        pipelines.c.name == checkpoints.c.pipeline, pipelines.c.current_attempt == checkpoints.c.attempt
    )


def actor_is_current(pipeline: str | sa.BindParameter[str], attempt: int | sa.BindParameter[int]) -> Condition:
    """The acting attempt is the current one."""
    return sa.exists().where(pipelines.c.name == pipeline, pipelines.c.current_attempt == attempt)


def accepts_acks(ref: Ref | LaterRef, attempt: int | sa.BindParameter[int]) -> Condition:
    """The checkpoint waits for acknowledgements, and from this attempt."""
    return sa.and_(
        sa.exists().where(is_checkpoint(ref), in_phase(Phase.IN_PROGRESS), checkpoints.c.attempt == attempt),
        actor_is_current(ref.pipeline, attempt),
    )


def nobody_pending() -> Condition:
    return ~sa.exists().where(
        acks.c.pipeline == checkpoints.c.pipeline,
        acks.c.checkpoint == checkpoints.c.id,
        acks.c.status == AckStatus.PENDING,
    )


def every_sink_done() -> Condition:
    return ~sa.exists().where(
        sink_commits.c.pipeline == checkpoints.c.pipeline,
        sink_commits.c.checkpoint == checkpoints.c.id,
        sink_commits.c.status.not_in(sorted(SINK_DONE)),
    )


def is_not_corrupt() -> Condition:
    """Nobody has found damage in the checkpoint: what builds on it is as damaged as it is."""
    return checkpoints.c.verdict.is_distinct_from(Verdict.CORRUPT)


def is_unpinned() -> Condition:
    return ~sa.exists().where(pins.c.pipeline == checkpoints.c.pipeline, pins.c.checkpoint == checkpoints.c.id)


def has_revision(pipeline: str, revision: int) -> Condition:
    """Nothing that a cleanup's plan depends on has changed since it was read."""
    return sa.exists().where(pipelines.c.name == pipeline, pipelines.c.revision == revision)


def holds(tx: Tx, lease: Lease) -> Condition:
    """The lease has neither expired by the store's clock nor been taken back."""
    return sa.exists().where(
        leases.c.pipeline == lease.pipeline,
        leases.c.kind == lease.kind,
        leases.c.token == lease.token,
        leases.c.expires_at > tx.now_sql,
    )


def none_in_flight(pipeline: str) -> Condition:
    other = checkpoints.alias()
    return ~sa.exists().where(other.c.pipeline == pipeline, other.c.phase.in_(sorted(IN_FLIGHT)))


def is_cut(ref: Ref) -> Condition:
    return sa.and_(cuts.c.pipeline == ref.pipeline, cuts.c.checkpoint == ref.id)


def is_ack(ref: Ref) -> Condition:
    return sa.and_(acks.c.pipeline == ref.pipeline, acks.c.checkpoint == ref.id)


def is_sink(ref: Ref, sink: str) -> Condition:
    return sa.and_(
        sink_commits.c.pipeline == ref.pipeline, sink_commits.c.checkpoint == ref.id, sink_commits.c.sink == sink
    )
