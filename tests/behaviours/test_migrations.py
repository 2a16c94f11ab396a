"""Migrations make exactly the tables of the schema, on both databases; and what the tables themselves refuse."""

import multiprocessing
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from airflow_provider_ckpt.metastore import open_metastore
from airflow_provider_ckpt.metastore.migrating import VERSION_TABLE, current, head, upgrade
from airflow_provider_ckpt.metastore.schema import metadata
from airflow_provider_ckpt.protocol.errors import Misused, TryAgain
from airflow_provider_ckpt.protocol.settings import Settings
from tests.house import NAME, House


def test_the_migrated_tables_are_those_of_the_schema(house: House) -> None:
    with house.store.engine.sa.connect() as connection:
        options = {"version_table": VERSION_TABLE, "compare_type": True}
        differences = compare_metadata(MigrationContext.configure(connection, opts=options), metadata)
    assert differences == []


def test_upgrading_again_changes_nothing(house: House) -> None:
    assert upgrade(house.store.engine) is False
    assert current(house.store.engine) == head()


def _upgrade(url: str) -> None:
    store = open_metastore(url)
    upgrade(store.engine)
    store.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_several_installers_at_once_take_turns(kind: str, empty_database: Callable[[str], str]) -> None:
    url = empty_database(kind)
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=_upgrade, args=(url,)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 4
    store = open_metastore(url)
    assert current(store.engine) == head()
    store.close()


def test_a_store_of_a_newer_version_is_refused_by_name(house: House) -> None:
    with house.store.engine.write() as tx:
        tx.connection.exec_driver_sql(f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
    with pytest.raises(Misused, match="is at version 9999, which this package does not know"):
        upgrade(house.store.engine)


def test_a_store_without_tables_says_what_to_do(tmp_path: Path) -> None:
    store = open_metastore(f"sqlite:///{tmp_path / 'empty.db'}")
    with pytest.raises(Misused, match="Run `ckpt init`"):
        store.pipelines.all()
    store.close()


@pytest.mark.parametrize("change", ["UPDATE ckpt_events SET actor = 'nobody'", "DELETE FROM ckpt_events"])
def test_events_can_only_be_appended(house: House, change: str) -> None:
    house.store.pipelines.create(NAME, Settings(), identity="tester", actor="tester")
    before = house.store.events.newest(NAME)
    with house.store.engine.sa.connect() as connection, pytest.raises(sa.exc.DBAPIError, match="append-only"):
        connection.exec_driver_sql(change)
    assert house.store.events.newest(NAME) == before


def test_an_unreachable_store_is_said_without_its_password() -> None:
    store = open_metastore("postgresql://ckpt:secret@127.0.0.1:1/ckpt")
    with pytest.raises(TryAgain, match="did not answer") as unreachable:
        store.pipelines.all()
    assert "secret" not in str(unreachable.value)
    assert "127.0.0.1" in str(unreachable.value)


@pytest.mark.parametrize("url", ["mysql://x/y", "no url", "postgresql://h:port/x"])
def test_a_url_that_can_not_be_is_misused(url: str) -> None:
    with pytest.raises(Misused):
        open_metastore(url)
