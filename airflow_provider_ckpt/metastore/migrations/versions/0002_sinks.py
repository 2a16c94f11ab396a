"""What a sink published, and the sinks whose duplicates a person accepted for an attempt.

Revision ID: 0002
Revises: 0001
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.add_column("ckpt_sink_commits", sa.Column("published", _JSON, nullable=True))
    op.add_column("ckpt_attempts", sa.Column("accepted", _JSON, nullable=True))
