"""Hooks: how Airflow reaches the metastore and the storage."""
