"""Events may be trimmed below a number that is noted with their pipeline; everything else of them stays append-only.

Revision ID: 0005
Revises: 0004
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_TRIMMED = "(SELECT trimmed_upto FROM ckpt_pipelines WHERE name = OLD.pipeline)"


def upgrade() -> None:
    op.add_column("ckpt_pipelines", sa.Column("trimmed_upto", sa.BigInteger(), nullable=False, server_default="0"))
    op.create_index("ix_ckpt_evidence_received", "ckpt_evidence", ["pipeline", "received_at"])
    if op.get_context().dialect.name == "sqlite":
        _allow_on_sqlite()
    else:
        _allow_on_postgresql()


def _allow_on_sqlite() -> None:
    op.execute("DROP TRIGGER ckpt_events_no_delete")
    op.execute(
        f"CREATE TRIGGER ckpt_events_no_delete BEFORE DELETE ON ckpt_events WHEN OLD.seq > {_TRIMMED} "
        "BEGIN SELECT RAISE(ABORT, 'ckpt_events is append-only'); END"
    )


def _allow_on_postgresql() -> None:
    op.execute("DROP TRIGGER ckpt_events_append_only ON ckpt_events")
    op.execute(
        "CREATE TRIGGER ckpt_events_append_only BEFORE UPDATE OR TRUNCATE ON ckpt_events "
        "FOR EACH STATEMENT EXECUTE FUNCTION ckpt_events_append_only()"
    )
    op.execute(
        "CREATE FUNCTION ckpt_events_trimmed_only() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN IF OLD.seq > {_TRIMMED} THEN RAISE EXCEPTION 'ckpt_events is append-only'; END IF; "
        "RETURN OLD; END $$"
    )
    op.execute(
        "CREATE TRIGGER ckpt_events_trimmed_only BEFORE DELETE ON ckpt_events "
        "FOR EACH ROW EXECUTE FUNCTION ckpt_events_trimmed_only()"
    )
