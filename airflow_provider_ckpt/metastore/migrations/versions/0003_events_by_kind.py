"""An index by which the last event of a kind is found, however long the history.

Revision ID: 0003
Revises: 0002
"""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_ckpt_events_kind", "ckpt_events", ["pipeline", "kind", "seq"])
