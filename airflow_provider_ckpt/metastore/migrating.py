"""Bringing a store to the version of this package, with Alembic, in a version table of its own."""

from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from airflow_provider_ckpt.metastore.engine import Engine, Tx
from airflow_provider_ckpt.protocol.errors import Misused

VERSION_TABLE = "ckpt_alembic_version"
_LOCK = 0x636B7074  # "ckpt": two installers at once take turns on PostgreSQL; SQLite's BEGIN IMMEDIATE does the same


def upgrade(engine: Engine) -> bool:
    """Make or update the tables; False when they were up to date.

    :raises Misused: when the store was made by a newer version of this package.
    """
    with engine.write() as tx:
        if engine.dialect == "postgresql":
            tx.connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
        before = _current(tx)
        if before == head():
            return False
        _refuse_newer(engine, before)
        config = _config()
        config.attributes["connection"] = tx.connection
        command.upgrade(config, "head")
        return True


def current(engine: Engine) -> str | None:
    """The version that the store is at; None when it has no tables."""
    with engine.read() as tx:
        return _current(tx)


def head() -> str:
    """The version that this package needs."""
    newest = ScriptDirectory.from_config(_config()).get_current_head()
    assert newest is not None  # noqa: S101 - the package ships migrations
    return newest


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.set_main_option("path_separator", "os")
    return config


def _current(tx: Tx) -> str | None:
    return MigrationContext.configure(tx.connection, opts={"version_table": VERSION_TABLE}).get_current_revision()


def _refuse_newer(engine: Engine, version: str | None) -> None:
    known = {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}
    if version is not None and version not in known:
        raise Misused(
            f"The metastore {engine.name} is at version {version}, which this package does not know. "
            "Upgrade airflow-provider-ckpt to the version that made it."
        )
