"""Runs migrations on the connection that `migrating.upgrade` hands in; there is no other way to run them."""

from alembic import context

from airflow_provider_ckpt.metastore.migrating import VERSION_TABLE
from airflow_provider_ckpt.metastore.schema import metadata

context.configure(
    connection=context.config.attributes["connection"], target_metadata=metadata, version_table=VERSION_TABLE
)
context.run_migrations()
