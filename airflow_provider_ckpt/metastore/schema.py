"""The tables of the metadata store. Migrations make them; a test compares the two.

`ckpt_` in front of every name lets the store share a database with others.
"""

from datetime import UTC, datetime

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.engine import Dialect

from airflow_provider_ckpt.protocol.phases import IN_FLIGHT, Phase
from airflow_provider_ckpt.protocol.records import AckStatus

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

Json = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")


class Time(sa.types.TypeDecorator[datetime]):
    """An aware UTC time on both databases; SQLite keeps it as text that sorts."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        utc = value.astimezone(UTC)
        return utc.replace(tzinfo=None) if dialect.name == "sqlite" else utc

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _pipeline(*, primary_key: bool = True) -> sa.Column[str]:
    return sa.Column(
        "pipeline", sa.String(100), sa.ForeignKey("ckpt_pipelines.name"), primary_key=primary_key, nullable=False
    )


def _one_of(column: str, values: frozenset[Phase]) -> sa.TextClause:
    return sa.text(f"{column} IN ({', '.join(repr(str(value)) for value in sorted(values))})")


pipelines = sa.Table(
    "ckpt_pipelines",
    metadata,
    sa.Column("name", sa.String(100), primary_key=True),
    sa.Column("identity", sa.String(100), nullable=False),  # also written into the storage that belongs to it
    sa.Column("settings", Json, nullable=False),
    sa.Column("desired_state", sa.String(20), nullable=False),
    sa.Column("current_attempt", sa.Integer),  # the fencing token: every older attempt is fenced
    sa.Column("next_attempt", sa.Integer, nullable=False),
    sa.Column("next_checkpoint", sa.Integer, nullable=False),
    sa.Column("revision", sa.BigInteger, nullable=False),
    sa.Column("deferred_since", Time),
    sa.Column("cleanup_waiting_since", Time),
    sa.Column("created_at", Time, nullable=False),
    sa.Column("trimmed_upto", sa.BigInteger, nullable=False, server_default="0"),  # events up to here may be gone
)

attempts = sa.Table(
    "ckpt_attempts",
    metadata,
    _pipeline(),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("status", sa.String(20), nullable=False),
    sa.Column("rung", sa.String(20), nullable=False),
    sa.Column("parent", sa.Integer),
    sa.Column("fork_at", sa.Integer),
    sa.Column("restored_from", sa.Integer),
    sa.Column("graph", Json),
    sa.Column("claim", sa.String(100)),  # which driver claimed it
    sa.Column("application_id", sa.Text),
    sa.Column("host", sa.Text),
    sa.Column("numbered_at", Time, nullable=False),
    sa.Column("planned_at", Time),
    sa.Column("claimed_at", Time),
    sa.Column("heartbeat_at", Time),
    sa.Column("ended_at", Time),
    sa.Column("failure", sa.Text),
    sa.Column("accepted", Json),
    sa.Column("submission", Json),  # what a cluster knows it by, from its submission on
    sa.Column("submitted_at", Time),
)

checkpoints = sa.Table(
    "ckpt_checkpoints",
    metadata,
    _pipeline(),
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("phase", sa.String(20), nullable=False),
    sa.Column("kind", sa.String(20), nullable=False),
    sa.Column("name", sa.String(100)),
    sa.Column("trigger_key", sa.Text, nullable=False),
    sa.Column("retry_of", sa.Integer),
    sa.Column("requested_by", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("triggered_at", Time, nullable=False),
    sa.Column("deadline", Time, nullable=False),
    sa.Column("frozen_at", Time),
    sa.Column("participants", sa.Integer),
    sa.Column("manifest_path", sa.Text),
    sa.Column("manifest_sha256", sa.String(64)),
    sa.Column("new_bytes", sa.BigInteger),
    sa.Column("full_bytes", sa.BigInteger),
    sa.Column("new_files", sa.Integer),
    sa.Column("full_files", sa.Integer),
    sa.Column("decided_at", Time),
    sa.Column("ended_at", Time),
    sa.Column("failure_reason", sa.String(40)),
    sa.Column("failure_message", sa.Text),
    sa.Column("blame", Json),
    sa.Column("last_participant", sa.Text),
    sa.Column("verdict", sa.String(20)),
    sa.Column("verdict_detail", sa.Text),
    sa.Column("verdict_at", Time),
    sa.Column("swept_at", Time),  # a failed one: its files are condemned, nobody may build on them
    sa.CheckConstraint(_one_of("phase", frozenset(Phase)), name="phase"),
)
sa.Index(
    "ux_ckpt_checkpoints_one_in_flight",
    checkpoints.c.pipeline,
    unique=True,
    sqlite_where=_one_of("phase", IN_FLIGHT),
    postgresql_where=_one_of("phase", IN_FLIGHT),
)
sa.Index(
    "ux_ckpt_checkpoints_trigger_key",
    checkpoints.c.pipeline,
    checkpoints.c.trigger_key,
    unique=True,
    sqlite_where=sa.text("phase <> 'FAILED'"),
    postgresql_where=sa.text("phase <> 'FAILED'"),
)
sa.Index("ix_ckpt_checkpoints_phase", checkpoints.c.pipeline, checkpoints.c.phase, checkpoints.c.id)
sa.Index("ix_ckpt_checkpoints_attempt", checkpoints.c.pipeline, checkpoints.c.attempt, checkpoints.c.id)
sa.Index("ix_ckpt_checkpoints_name", checkpoints.c.pipeline, checkpoints.c.name)
sa.Index("ix_ckpt_checkpoints_key", checkpoints.c.pipeline, checkpoints.c.trigger_key)


def _of_checkpoint() -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["pipeline", "checkpoint"], ["ckpt_checkpoints.pipeline", "ckpt_checkpoints.id"])


def _checkpoint() -> sa.Column[int]:
    return sa.Column("checkpoint", sa.Integer, primary_key=True, autoincrement=False)


cuts = sa.Table(
    "ckpt_cuts",
    metadata,
    sa.Column("pipeline", sa.String(100), primary_key=True),
    _checkpoint(),
    sa.Column("query", sa.String(200), primary_key=True),
    sa.Column("batch", sa.BigInteger),
    sa.Column("consumed", Json, nullable=False),
    sa.Column("properties", Json, nullable=False),
    sa.Column("participants", Json, nullable=False),
    sa.Column("bases", Json, nullable=False),
    sa.Column("host", sa.Text),
    sa.Column("captured_at", Time, nullable=False),
    _of_checkpoint(),
)

acks = sa.Table(
    "ckpt_acks",
    metadata,
    sa.Column("pipeline", sa.String(100), primary_key=True),
    _checkpoint(),
    sa.Column("participant", sa.String(500), primary_key=True),
    sa.Column("query", sa.String(200), nullable=False),
    sa.Column("kind", sa.String(20), nullable=False),
    sa.Column("status", sa.String(20), nullable=False),
    sa.Column("stage", sa.String(40), nullable=False),
    sa.Column("stage_at", Time),
    sa.Column("host", sa.Text),
    sa.Column("ack", Json),
    sa.Column("message", sa.Text),
    sa.Column("acked_at", Time),
    _of_checkpoint(),
)
sa.Index(
    "ix_ckpt_acks_pending",
    acks.c.pipeline,
    acks.c.checkpoint,
    sqlite_where=sa.text(f"status = '{AckStatus.PENDING}'"),
    postgresql_where=sa.text(f"status = '{AckStatus.PENDING}'"),
)

evidence = sa.Table(
    "ckpt_evidence",  # acknowledgements that changed nothing
    metadata,
    sa.Column("seq", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
    _pipeline(primary_key=False),
    sa.Column("checkpoint", sa.Integer, nullable=False),
    sa.Column("participant", sa.String(500), nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("outcome", sa.String(20), nullable=False),
    sa.Column("host", sa.Text),
    sa.Column("ack", Json, nullable=False),
    sa.Column("received_at", Time, nullable=False),
)
sa.Index("ix_ckpt_evidence_checkpoint", evidence.c.pipeline, evidence.c.checkpoint)
sa.Index("ix_ckpt_evidence_received", evidence.c.pipeline, evidence.c.received_at)

sink_commits = sa.Table(
    "ckpt_sink_commits",
    metadata,
    sa.Column("pipeline", sa.String(100), primary_key=True),
    _checkpoint(),
    sa.Column("sink", sa.String(500), primary_key=True),
    sa.Column("status", sa.String(20), nullable=False),
    sa.Column("staged", Json, nullable=False),
    sa.Column("tries", sa.Integer, nullable=False),
    sa.Column("last_error", sa.Text),
    sa.Column("committed_at", Time),
    sa.Column("published", Json),
    _of_checkpoint(),
)

leases = sa.Table(
    "ckpt_leases",
    metadata,
    _pipeline(),
    sa.Column("kind", sa.String(20), primary_key=True),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("token", sa.String(100), nullable=False),
    sa.Column("acquired_at", Time, nullable=False),
    sa.Column("expires_at", Time, nullable=False),
)

pins = sa.Table(
    "ckpt_pins",
    metadata,
    sa.Column("pipeline", sa.String(100), primary_key=True),
    _checkpoint(),
    sa.Column("owner", sa.String(200), primary_key=True),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("pinned_at", Time, nullable=False),
    _of_checkpoint(),
)

condemned = sa.Table(
    "ckpt_condemned",  # stored files that will be deleted; a row goes when its file is gone
    metadata,
    _pipeline(),
    sa.Column("path", sa.String(1000), primary_key=True),
    sa.Column("why", sa.Text, nullable=False),
    sa.Column("condemned_at", Time, nullable=False),
    sa.Column("delete_after", Time, nullable=False),
)

events = sa.Table(
    "ckpt_events",  # append-only: the migrations forbid UPDATE, and DELETE above what its pipeline says is trimmed
    metadata,
    sa.Column("seq", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
    _pipeline(primary_key=False),
    sa.Column("at", Time, nullable=False),
    sa.Column("kind", sa.String(40), nullable=False),
    sa.Column("attempt", sa.Integer),
    sa.Column("checkpoint", sa.Integer),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("detail", Json, nullable=False),
)
sa.Index("ix_ckpt_events_pipeline", events.c.pipeline, events.c.seq)
sa.Index("ix_ckpt_events_kind", events.c.pipeline, events.c.kind, events.c.seq)
sa.Index("ix_ckpt_events_checkpoint", events.c.pipeline, events.c.checkpoint, events.c.seq)
