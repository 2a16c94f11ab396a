"""Sinks and the doctor on S3: uploads of tasks that ran twice, a bucket's own rules, a server that overwrites."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3
import pytest
from moto.server import ThreadedMotoServer

from airflow_provider_ckpt.cli.commands.doctor import _probe
from airflow_provider_ckpt.protocol.errors import Corrupt
from airflow_provider_ckpt.protocol.records import Ref
from airflow_provider_ckpt.spark.sinks import DeltaSink, FilesSink, Name, Publication, Slot
from airflow_provider_ckpt.spark.sinks.s3_landing import _check_rules
from airflow_provider_ckpt.storage.opening import open_storage
from tests import frames

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of moto and its web server
NAME = Name(pipeline="orders", sink="totals/sink")


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def client(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "for-moto")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "for-moto")
    return boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")


@pytest.fixture
def bucket(client: Any) -> str:
    name = f"b{uuid4().hex}"
    client.create_bucket(Bucket=name)
    return name


@pytest.fixture
def url(endpoint: str, bucket: str) -> str:
    return f"s3://{bucket}/lake?endpoint={endpoint}&region=us-east-1&addressing=path"


@pytest.fixture
def twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark lost what the first task had said, and ran it again."""
    monkeypatch.setattr(frames._Session, "lost", 1)


def _slot(batch: int, folder: Path, attempt: int = 1) -> Slot:
    return Slot(name=NAME, attempt=attempt, batch=batch, run=uuid4().hex, scratch=folder / uuid4().hex)


@pytest.mark.usefixtures("twice")
@pytest.mark.parametrize("kind", [FilesSink, DeltaSink])
def test_an_upload_of_a_task_that_ran_twice_is_aborted_with_the_commit(
    url: str, tmp_path: Path, kind: type[FilesSink | DeltaSink]
) -> None:
    sink, storage = kind(url), open_storage(url)
    first, waiting = (sink.stage(frames.numbers([n]), _slot(n, tmp_path)).document for n in (1, 2))
    assert len(list(storage.partials(""))) == 4
    staged = sink.prepare([first])
    publication = Publication(ref=Ref("orders", 1), name=NAME, attempt=1, after=None, staged=staged)
    sink.commit(publication)
    assert len(list(storage.partials(""))) == 2, "those of the batch that waits"
    sink.commit(publication)
    next_one = Publication(ref=Ref("orders", 2), name=NAME, attempt=1, after=1, staged=sink.prepare([waiting]))
    sink.commit(next_one)
    assert list(storage.partials("")) == []
    assert list(sink.leftovers(NAME)) == []


@pytest.mark.usefixtures("twice")
def test_an_upload_of_a_task_that_ran_twice_is_aborted_with_what_is_discarded(url: str, tmp_path: Path) -> None:
    sink, storage = FilesSink(url), open_storage(url)
    kept = sink.stage(frames.numbers([1]), _slot(1, tmp_path)).document
    sink.stage(frames.numbers([2]), _slot(2, tmp_path))
    sink.discard(NAME, 2, [kept])
    assert len(list(storage.partials(""))) == 2
    sink.discard(NAME, 2, [])
    assert list(storage.partials("")) == []


def _rule(days: int, *, status: str = "Enabled", **where: Any) -> Any:
    return {
        "ID": uuid4().hex,
        "Status": status,
        "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": days},
        **(where or {"Filter": {"Prefix": ""}}),
    }


@pytest.mark.parametrize(
    ("rules", "days"),
    [
        ([], None),
        ([_rule(1)], 1),
        ([_rule(9), _rule(3)], 3),
        ([_rule(1, status="Disabled")], None),
        ([_rule(2, Filter={"Prefix": "la"})], 2),
        ([_rule(2, Filter={"Prefix": "lake/.ckpt/"})], 2),
        ([_rule(2, Filter={"Prefix": "elsewhere/"})], None),
        ([_rule(2, Prefix="lake/")], 2),
        ([{"ID": "a", "Status": "Enabled", "Filter": {"Prefix": ""}, "Expiration": {"Days": 1}}], None),
    ],
)
def test_the_rules_of_a_bucket_say_how_long_an_upload_may_wait(
    client: Any, bucket: str, url: str, rules: list[Any], days: int | None
) -> None:
    if rules:
        client.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": rules})
    storage: Any = open_storage(url)
    assert storage.upload_days == days


@pytest.mark.parametrize(("days", "is_warned"), [(6, True), (7, False)])
def test_a_bucket_that_aborts_what_is_staged_too_soon_is_warned_of_when_an_attempt_starts(
    client: Any, bucket: str, url: str, caplog: pytest.LogCaptureFixture, days: int, is_warned: bool
) -> None:
    client.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": [_rule(days)]})
    _check_rules.cache_clear()
    sink = FilesSink(url)
    with caplog.at_level(logging.WARNING, "airflow_provider_ckpt"):
        sink.discard(NAME, 1, [])
        sink.discard(NAME, 2, [])
    said = [record.getMessage() for record in caplog.records if record.name == "airflow_provider_ckpt.spark"]
    assert len(said) == is_warned
    if is_warned:
        assert f"s3://{bucket}/lake aborts uploads in parts 6 days after they began" in said[0]
        assert "Set DaysAfterInitiation of that rule (AbortIncompleteMultipartUpload) to 7 or more" in said[0]


def test_the_doctor_is_content_with_a_server_that_has_conditional_writes(url: str) -> None:
    storage = open_storage(url)
    assert "overwrites nothing" in _probe(storage)
    assert list(storage.list("")) == []
    assert list(storage.partials("")) == []


@pytest.mark.parametrize("operation", ["put_object", "complete_multipart_upload"])
def test_the_doctor_fails_a_server_that_ignores_if_none_match(
    url: str, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    """For either of the two ways to write."""
    storage: Any = open_storage(url)
    real = getattr(storage._client, operation)
    monkeypatch.setattr(
        storage._client, operation, lambda **asked: real(**{k: v for k, v in asked.items() if k != "IfNoneMatch"})
    )
    with pytest.raises(Corrupt, match=r"overwrites what is there.*Use a server with conditional writes"):
        _probe(storage)
    assert list(storage.list("")) == []
