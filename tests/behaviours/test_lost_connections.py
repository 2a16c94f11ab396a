"""PostgreSQL ends a connection in the middle of a transaction: what was read was read, and errors have their names."""

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
import sqlalchemy as sa

from airflow_provider_ckpt.metastore import Metastore, open_metastore
from airflow_provider_ckpt.metastore.engine import Tx
from airflow_provider_ckpt.protocol.errors import Misused, Unreachable


@pytest.fixture
def store(new_database: Callable[[str], str]) -> Iterator[Metastore]:
    with closing(open_metastore(new_database("postgresql"))) as store:
        yield store


def _lose(store: Metastore, tx: Tx) -> None:
    number = tx.connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
    with store.engine.sa.connect() as other:
        assert other.execute(sa.select(sa.func.pg_terminate_backend(number, 5_000))).scalar_one()


def test_a_read_that_has_its_answer_does_not_mind_that_the_connection_is_lost(store: Metastore) -> None:
    with store.engine.read() as tx:
        _lose(store, tx)
    assert store.pipelines.all() == [], "the next one has another connection"


def test_a_write_that_is_given_up_says_why_also_when_the_connection_is_lost(store: Metastore) -> None:
    def give_up() -> None:
        with store.engine.write() as tx:
            _lose(store, tx)
            raise Misused("given up")

    with pytest.raises(Misused, match="given up"):
        give_up()


@pytest.mark.parametrize("kind", ["read", "write"])
def test_a_statement_on_a_lost_connection_is_an_unreachable_store(store: Metastore, kind: str) -> None:
    def ask() -> None:
        with getattr(store.engine, kind)() as tx:
            _lose(store, tx)
            tx.connection.exec_driver_sql("SELECT 1")

    with pytest.raises(Unreachable, match="did not answer"):
        ask()
