"""What an attempt was submitted as, from before its driver has claimed it.

Revision ID: 0004
Revises: 0003
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.add_column("ckpt_attempts", sa.Column("submission", _JSON, nullable=True))
    op.add_column("ckpt_attempts", sa.Column("submitted_at", sa.DateTime(timezone=True), nullable=True))
