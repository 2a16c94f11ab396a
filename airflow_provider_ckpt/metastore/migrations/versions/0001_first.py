"""The first version of the store.

Revision ID: 0001
Revises:
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")
_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "ckpt_pipelines",
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("identity", sa.String(length=100), nullable=False),
        sa.Column("settings", _JSON, nullable=False),
        sa.Column("desired_state", sa.String(length=20), nullable=False),
        sa.Column("current_attempt", sa.Integer(), nullable=True),
        sa.Column("next_attempt", sa.Integer(), nullable=False),
        sa.Column("next_checkpoint", sa.Integer(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("deferred_since", _TIME, nullable=True),
        sa.Column("cleanup_waiting_since", _TIME, nullable=True),
        sa.Column("created_at", _TIME, nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_ckpt_pipelines")),
    )
    op.create_table(
        "ckpt_attempts",
        sa.Column("pipeline", sa.String(length=100), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("status", sa.String(length=20), nullable=False),
        sa.Column("rung", sa.String(length=20), nullable=False),
        sa.Column("parent", sa.Integer(), nullable=True),
        sa.Column("fork_at", sa.Integer(), nullable=True),
        sa.Column("restored_from", sa.Integer(), nullable=True),
        sa.Column("graph", _JSON, nullable=True),
        sa.Column("claim", sa.String(length=100), nullable=True),
        sa.Column("application_id", sa.Text(), nullable=True),
        sa.Column("host", sa.Text(), nullable=True),
        sa.Column("numbered_at", _TIME, nullable=False),
        sa.Column("planned_at", _TIME, nullable=True),
        sa.Column("claimed_at", _TIME, nullable=True),
        sa.Column("heartbeat_at", _TIME, nullable=True),
        sa.Column("ended_at", _TIME, nullable=True),
        sa.Column("failure", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["pipeline"], ["ckpt_pipelines.name"], name=op.f("fk_ckpt_attempts_pipeline")),
        sa.PrimaryKeyConstraint("pipeline", "number", name=op.f("pk_ckpt_attempts")),
    )
    op.create_table(
        "ckpt_checkpoints",
        sa.Column("pipeline", sa.String(length=100), nullable=False),
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("phase", sa.String(length=20), nullable=False),
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=True),
        sa.Column("trigger_key", sa.Text(), nullable=False),
        sa.Column("retry_of", sa.Integer(), nullable=True),
        sa.Column("requested_by", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("triggered_at", _TIME, nullable=False),
        sa.Column("deadline", _TIME, nullable=False),
        sa.Column("frozen_at", _TIME, nullable=True),
        sa.Column("participants", sa.Integer(), nullable=True),
        sa.Column("manifest_path", sa.Text(), nullable=True),
        sa.Column("manifest_sha256", sa.String(length=64), nullable=True),
        sa.Column("new_bytes", sa.BigInteger(), nullable=True),
        sa.Column("full_bytes", sa.BigInteger(), nullable=True),
        sa.Column("new_files", sa.Integer(), nullable=True),
        sa.Column("full_files", sa.Integer(), nullable=True),
        sa.Column("decided_at", _TIME, nullable=True),
        sa.Column("ended_at", _TIME, nullable=True),
        sa.Column("failure_reason", sa.String(length=40), nullable=True),
        sa.Column("failure_message", sa.Text(), nullable=True),
        sa.Column("blame", _JSON, nullable=True),
        sa.Column("last_participant", sa.Text(), nullable=True),
        sa.Column("verdict", sa.String(length=20), nullable=True),
        sa.Column("verdict_detail", sa.Text(), nullable=True),
        sa.Column("verdict_at", _TIME, nullable=True),
        sa.Column("swept_at", _TIME, nullable=True),
        sa.CheckConstraint(
            "phase IN ('COMMITTING', 'COMPLETED', 'DISCARDED', 'DISCARDING', 'FAILED', 'IN_PROGRESS', 'TRIGGERED')",
            name=op.f("ck_ckpt_checkpoints_phase"),
        ),
        sa.ForeignKeyConstraint(["pipeline"], ["ckpt_pipelines.name"], name=op.f("fk_ckpt_checkpoints_pipeline")),
        sa.PrimaryKeyConstraint("pipeline", "id", name=op.f("pk_ckpt_checkpoints")),
    )
    op.create_index("ix_ckpt_checkpoints_attempt", "ckpt_checkpoints", ["pipeline", "attempt", "id"], unique=False)
    op.create_index("ix_ckpt_checkpoints_key", "ckpt_checkpoints", ["pipeline", "trigger_key"], unique=False)
    op.create_index("ix_ckpt_checkpoints_name", "ckpt_checkpoints", ["pipeline", "name"], unique=False)
    op.create_index("ix_ckpt_checkpoints_phase", "ckpt_checkpoints", ["pipeline", "phase", "id"], unique=False)
    op.create_index(
        "ux_ckpt_checkpoints_one_in_flight",
        "ckpt_checkpoints",
        ["pipeline"],
        unique=True,
        sqlite_where=sa.text("phase IN ('COMMITTING', 'IN_PROGRESS', 'TRIGGERED')"),
        postgresql_where=sa.text("phase IN ('COMMITTING', 'IN_PROGRESS', 'TRIGGERED')"),
    )
    op.create_index(
        "ux_ckpt_checkpoints_trigger_key",
        "ckpt_checkpoints",
        ["pipeline", "trigger_key"],
        unique=True,
        sqlite_where=sa.text("phase <> 'FAILED'"),
        postgresql_where=sa.text("phase <> 'FAILED'"),
    )
    op.create_table(
        "ckpt_condemned",
        sa.Column("pipeline", sa.String(length=100), nullable=False),
        sa.Column("path", sa.String(length=1000), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("condemned_at", _TIME, nullable=False),
        sa.Column("delete_after", _TIME, nullable=False),
        sa.ForeignKeyConstraint(["pipeline"], ["ckpt_pipelines.name"], name=op.f("fk_ckpt_condemned_pipeline")),
        sa.PrimaryKeyConstraint("pipeline", "path", name=op.f("pk_ckpt_condemned")),
    )
    op.create_table(
        "ckpt_events",
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("pipeline", sa.String(length=100), nullable=False),
        sa.Column("at", _TIME, nullable=False),
        sa.Column("kind", sa.String(length=40), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=True),
        sa.Column("checkpoint", sa.Integer(), nullable=True),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("detail", _JSON, nullable=False),
        sa.ForeignKeyConstraint(["pipeline"], ["ckpt_pipelines.name"], name=op.f("fk_ckpt_events_pipeline")),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_ckpt_events")),
    )
    op.create_index("ix_ckpt_events_checkpoint", "ckpt_events", ["pipeline", "checkpoint", "seq"], unique=False)
    op.create_index("ix_ckpt_events_pipeline", "ckpt_events", ["pipeline", "seq"], unique=False)
    op.create_table(
        "ckpt_evidence",
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("pipeline", sa.String(length=100), nullable=False),
        sa.Column("checkpoint", sa.Integer(), nullable=False),
        sa.Column("participant", sa.String(length=500), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("outcome", sa.String(length=20), nullable=False),
        sa.Column("host", sa.Text(), nullable=True),
        sa.Column("ack", _JSON, nullable=False),
        sa.Column("received_at", _TIME, nullable=False),
        sa.ForeignKeyConstraint(["pipeline"], ["ckpt_pipelines.name"], name=op.f("fk_ckpt_evidence_pipeline")),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_ckpt_evidence")),
    )
    op.create_index("ix_ckpt_evidence_checkpoint", "ckpt_evidence", ["pipeline", "checkpoint"], unique=False)
    op.create_table(
        "ckpt_leases",
        sa.Column("pipeline", sa.String(length=100), nullable=False),
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("token", sa.String(length=100), nullable=False),
        sa.Column("acquired_at", _TIME, nullable=False),
        sa.Column("expires_at", _TIME, nullable=False),
        sa.ForeignKeyConstraint(["pipeline"], ["ckpt_pipelines.name"], name=op.f("fk_ckpt_leases_pipeline")),
        sa.PrimaryKeyConstraint("pipeline", "kind", name=op.f("pk_ckpt_leases")),
    )
    op.create_table(
        "ckpt_acks",
        sa.Column("pipeline", sa.String(length=100), nullable=False),
        sa.Column("checkpoint", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("participant", sa.String(length=500), nullable=False),
        sa.Column("query", sa.String(length=200), nullable=False),
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("status", sa.String(length=20), nullable=False),
        sa.Column("stage", sa.String(length=40), nullable=False),
        sa.Column("stage_at", _TIME, nullable=True),
        sa.Column("host", sa.Text(), nullable=True),
        sa.Column("ack", _JSON, nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("acked_at", _TIME, nullable=True),
        sa.ForeignKeyConstraint(
            ["pipeline", "checkpoint"],
            ["ckpt_checkpoints.pipeline", "ckpt_checkpoints.id"],
            name=op.f("fk_ckpt_acks_pipeline_checkpoint"),
        ),
        sa.PrimaryKeyConstraint("pipeline", "checkpoint", "participant", name=op.f("pk_ckpt_acks")),
    )
    op.create_index(
        "ix_ckpt_acks_pending",
        "ckpt_acks",
        ["pipeline", "checkpoint"],
        unique=False,
        sqlite_where=sa.text("status = 'pending'"),
        postgresql_where=sa.text("status = 'pending'"),
    )
    op.create_table(
        "ckpt_cuts",
        sa.Column("pipeline", sa.String(length=100), nullable=False),
        sa.Column("checkpoint", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("query", sa.String(length=200), nullable=False),
        sa.Column("batch", sa.BigInteger(), nullable=True),
        sa.Column("consumed", _JSON, nullable=False),
        sa.Column("properties", _JSON, nullable=False),
        sa.Column("participants", _JSON, nullable=False),
        sa.Column("bases", _JSON, nullable=False),
        sa.Column("host", sa.Text(), nullable=True),
        sa.Column("captured_at", _TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["pipeline", "checkpoint"],
            ["ckpt_checkpoints.pipeline", "ckpt_checkpoints.id"],
            name=op.f("fk_ckpt_cuts_pipeline_checkpoint"),
        ),
        sa.PrimaryKeyConstraint("pipeline", "checkpoint", "query", name=op.f("pk_ckpt_cuts")),
    )
    op.create_table(
        "ckpt_pins",
        sa.Column("pipeline", sa.String(length=100), nullable=False),
        sa.Column("checkpoint", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("owner", sa.String(length=200), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("pinned_at", _TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["pipeline", "checkpoint"],
            ["ckpt_checkpoints.pipeline", "ckpt_checkpoints.id"],
            name=op.f("fk_ckpt_pins_pipeline_checkpoint"),
        ),
        sa.PrimaryKeyConstraint("pipeline", "checkpoint", "owner", name=op.f("pk_ckpt_pins")),
    )
    op.create_table(
        "ckpt_sink_commits",
        sa.Column("pipeline", sa.String(length=100), nullable=False),
        sa.Column("checkpoint", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("sink", sa.String(length=500), nullable=False),
        sa.Column("status", sa.String(length=20), nullable=False),
        sa.Column("staged", _JSON, nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("committed_at", _TIME, nullable=True),
        sa.ForeignKeyConstraint(
            ["pipeline", "checkpoint"],
            ["ckpt_checkpoints.pipeline", "ckpt_checkpoints.id"],
            name=op.f("fk_ckpt_sink_commits_pipeline_checkpoint"),
        ),
        sa.PrimaryKeyConstraint("pipeline", "checkpoint", "sink", name=op.f("pk_ckpt_sink_commits")),
    )
    _forbid_changes_of_events()


def _forbid_changes_of_events() -> None:
    """Events are append-only, whoever holds the connection."""
    if op.get_context().dialect.name == "sqlite":
        for change in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER ckpt_events_no_{change.lower()} BEFORE {change} ON ckpt_events "
                "BEGIN SELECT RAISE(ABORT, 'ckpt_events is append-only'); END"
            )
        return
    op.execute(
        "CREATE FUNCTION ckpt_events_append_only() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'ckpt_events is append-only'; END $$"
    )
    op.execute(
        "CREATE TRIGGER ckpt_events_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ckpt_events "
        "FOR EACH STATEMENT EXECUTE FUNCTION ckpt_events_append_only()"
    )
