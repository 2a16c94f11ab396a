"""Whole lifecycles on every pair of a store and a storage: SQLite and PostgreSQL, local disk and S3."""

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import boto3
import pytest
from moto.server import ThreadedMotoServer

from airflow_provider_ckpt.coordinator.cleanup import cleanup
from airflow_provider_ckpt.storage.base import Storage
from airflow_provider_ckpt.storage.local import LocalStorage
from airflow_provider_ckpt.storage.s3 import S3Storage
from airflow_provider_ckpt.testing import truth
from tests.house import NAME, House
from tests.rescue import check_tidy

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of moto and its web server


@pytest.fixture(scope="module")
def s3_endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(params=["local", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "local":
        return LocalStorage(tmp_path / "storage")
    client = boto3.client(
        "s3",
        endpoint_url=request.getfixturevalue("s3_endpoint"),
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    bucket = f"b{uuid4().hex}"
    client.create_bucket(Bucket=bucket)
    return S3Storage(client, bucket, "some/prefix")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_pipeline_lives_dies_and_comes_back(
    kind: str, storage: Storage, new_database: Callable[[str], str], tmp_path: Path
) -> None:
    house = House(new_database(kind), tmp_path / "unused", remote=storage)
    driver = house.pipeline(partitions=4, with_sink=True)
    for _ in range(4):
        house.checkpoint(driver, events=3)
    house.checkpoint(driver, events=1, savepoint="before-upgrade")
    house.pass_time(hours=2)
    report = cleanup(house.context, NAME)
    assert report.discarded == (1, 2)
    assert report.failed == {}
    driver.process(5)
    house.restore(with_sink=True)
    second = house.driver(partitions=4, with_sink=True, claim="second")
    second.start()
    newest = house.checkpoint(second, events=7)
    assert house.sink.read(NAME) == truth(20, 4)
    for _ in range(2):
        house.pass_time(days=2)
        cleanup(house.context, NAME)
    check_tidy(house.context, newest)
    house.store.close()
