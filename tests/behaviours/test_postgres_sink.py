"""The sink of a PostgreSQL table, as far as it goes without Spark: its marker, and who may move it."""

from collections.abc import Callable
from dataclasses import replace

import psycopg
import pytest

from airflow_provider_ckpt.protocol.errors import Fenced, Refused
from airflow_provider_ckpt.protocol.records import Ref
from airflow_provider_ckpt.protocol.recovery import SinkMarker
from airflow_provider_ckpt.spark.sinks import Name, PostgresSink, Publication

NAME = Name(pipeline="orders", sink="totals/sink")


@pytest.fixture
def sink(empty_database: Callable[[str], str]) -> PostgresSink:
    url = empty_database("postgresql").replace("+psycopg", "")
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE rows (n int)")
    return PostgresSink("rows", url=url)


def _publication(id_: int, after: int | None, attempt: int = 1) -> Publication:
    return Publication(ref=Ref("orders", id_), name=NAME, attempt=attempt, after=after, staged={"batches": []})


def test_a_commit_continues_what_its_table_has_or_is_refused(sink: PostgresSink) -> None:
    with pytest.raises(Refused, match="is at nothing, and orders/2 continues checkpoint 1"):
        sink.commit(_publication(2, after=1))
    sink.commit(_publication(1, after=None))
    for after in (None, 2):
        with pytest.raises(Refused, match="is at checkpoint 1, and orders/3 continues"):
            sink.commit(_publication(3, after=after))
    assert sink.marker(NAME) == SinkMarker(committed=1, attempt=1)
    sink.commit(_publication(3, after=1))
    sink.commit(_publication(3, after=1))
    assert sink.marker(NAME).committed == 3


def test_the_marker_names_the_newest_attempt_and_older_ones_are_refused(sink: PostgresSink) -> None:
    sink.commit(_publication(1, after=None))
    assert sink.recover(NAME, 4) == sink.marker(NAME) == SinkMarker(committed=1, attempt=4)
    with pytest.raises(Fenced):
        sink.commit(replace(_publication(2, after=1), attempt=3))
