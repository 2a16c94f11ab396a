"""How a driver's attachment decides, with queries that do what a test tells them: no JVM is there."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from airflow_provider_ckpt.coordinator.restore import restore
from airflow_provider_ckpt.protocol.cut import Graph, Query
from airflow_provider_ckpt.protocol.errors import CkptError
from airflow_provider_ckpt.protocol.records import AttemptStatus, DesiredState
from airflow_provider_ckpt.spark.attachment import Attachment
from airflow_provider_ckpt.spark.claiming import Claimed, Origin
from airflow_provider_ckpt.spark.conf import read_conf
from airflow_provider_ckpt.spark.folders import AttemptFolder
from airflow_provider_ckpt.spark.holding import Known
from airflow_provider_ckpt.spark.queries import Queries, Started
from tests.house import NAME, SETTINGS, House

QUERY = Query(name="totals")


class FailingQuery:
    """Runs for as many looks as it is told, and has failed then."""

    def __init__(self, looks: int) -> None:
        self._looks = looks
        self.lastProgress = None

    @property
    def isActive(self) -> bool:  # noqa: N802 - so Spark calls it
        self._looks -= 1
        return self._looks >= 0

    def exception(self) -> str | None:
        return "the disk is full" if self._looks < 0 else None

    def stop(self) -> None:
        self._looks = min(self._looks, 0)


@pytest.fixture
def house(new_database: Callable[[str], str], tmp_path: Path) -> Iterator[House]:
    house = House(new_database("sqlite"), tmp_path / "storage", clock=None)
    yield house
    house.store.close()


def _attach(house: House, work: Path, query: FailingQuery) -> Attachment:
    house.store.pipelines.create(NAME, SETTINGS, identity="tester", actor="tester")
    restore(house.context, NAME)
    attempt = house.store.attempts.claim(NAME, 1, "driver", Graph((QUERY,)))
    conf = read_conf({"spark.ckpt.pipeline": NAME, "spark.ckpt.poll": "0.05"}.get)
    claimed = Claimed(
        context=house.context,
        conf=conf,
        attempt=attempt,
        claim="driver",
        folder=AttemptFolder(work=work, pipeline=NAME, attempt=1),
        origin=Origin(),
        known=Known(),
    )
    nowhere = cast("SparkSession", None)
    queries = Queries(nowhere)
    queries.add(Started(asked=QUERY, properties={}, start_again=None, query=cast("StreamingQuery", query)))
    return Attachment(nowhere, claimed, queries)


@pytest.mark.parametrize("looks", range(6))
def test_a_query_that_fails_between_two_looks_is_never_taken_for_one_that_ended_well(
    house: House, tmp_path: Path, looks: int
) -> None:
    attachment = _attach(house, tmp_path / "work", FailingQuery(looks))
    attachment.start()
    with pytest.raises(CkptError, match="Query totals failed: the disk is full"):
        attachment.wait()
    attachment.close(None)
    ended = house.store.attempts.get(NAME, 1)
    assert (ended.status, ended.failure) == (AttemptStatus.FAILED, "Query totals failed: the disk is full")


def test_a_query_that_fails_while_it_is_being_stopped_has_failed(house: House, tmp_path: Path) -> None:
    attachment = _attach(house, tmp_path / "work", FailingQuery(1_000_000))
    house.store.pipelines.desire(NAME, DesiredState.STOPPED, actor="tester")
    attachment.start()
    with pytest.raises(CkptError, match="Query totals failed"):
        attachment.wait()
    attachment.close(None)
    assert house.store.attempts.get(NAME, 1).status is AttemptStatus.FAILED
