"""Declaring a pipeline: it exists afterwards, with the settings that were declared."""

from collections.abc import Mapping
from functools import partial
from uuid import uuid4

from airflow_provider_ckpt.metastore import Metastore
from airflow_provider_ckpt.protocol.errors import Misused, NotFound
from airflow_provider_ckpt.protocol.records import Pipeline
from airflow_provider_ckpt.protocol.settings import Settings, change_settings


def declare(store: Metastore, name: str, changes: Mapping[str, str], *, actor: str) -> Pipeline:
    """Make the pipeline, or bring what is declared up to date; settings that are not declared stay as they are."""
    try:
        found = store.pipelines.get(name)
    except NotFound:
        return _create(store, name, changes, actor)
    if change_settings(found.settings, changes) != found.settings:
        store.pipelines.change(name, partial(change_settings, changes=changes), actor=actor)
    return store.pipelines.get(name)


def _create(store: Metastore, name: str, changes: Mapping[str, str], actor: str) -> Pipeline:
    try:
        return store.pipelines.create(name, change_settings(Settings(), changes), identity=uuid4().hex, actor=actor)
    except Misused:  # somebody was faster: then it exists
        return store.pipelines.get(name)
