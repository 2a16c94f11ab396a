"""Stages on real databases for tests with real Spark."""

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import boto3
import pytest
from moto.server import ThreadedMotoServer

from tests.spark.stage import Stage


@pytest.fixture
def stage(tmp_path: Path, new_database: Callable[[str], str]) -> Iterator[Stage]:
    stage = Stage(folder=tmp_path, url=new_database("sqlite"), storage_url=str(tmp_path / "storage"))
    yield stage
    stage.close()


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of an empty place in a bucket on an S3 server, which remembers what earlier tests have left."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "for-moto")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "for-moto")
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1").create_bucket(Bucket="checkpoints")
    yield f"s3://checkpoints/test-{uuid4().hex}?endpoint={endpoint}&region=us-east-1&addressing=path"
    server.stop()
