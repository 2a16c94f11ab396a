"""From a URL to a storage, and what a URL may not say."""

import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from botocore.exceptions import EndpointConnectionError

import airflow_provider_ckpt.storage
from airflow_provider_ckpt.protocol.errors import Misused, Unreachable, UnsafePath
from airflow_provider_ckpt.storage import LocalStorage, MemoryStorage, open_storage
from airflow_provider_ckpt.storage.hdfs import HdfsStorage
from airflow_provider_ckpt.storage.hdfs_client import connect as connect_hdfs
from airflow_provider_ckpt.storage.hdfs_place import read_place
from airflow_provider_ckpt.storage.s3 import S3Storage
from airflow_provider_ckpt.storage.s3_client import connect

SECRET = "wJalrXUtnFEMI"


@pytest.fixture(autouse=True)
def _no_settings_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "for-tests")  # else boto3 would ask the network for some
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "for-tests")


def test_a_path_and_a_file_url_open_the_same_folder(tmp_path: Path) -> None:
    root = tmp_path / "größe 10%"
    by_path = open_storage(str(root))
    by_path.create("a", b"a")
    assert isinstance(by_path, LocalStorage)
    assert open_storage(by_path.url).read("a") == b"a"
    assert by_path.url == root.as_uri()


def test_memory_opens_a_new_storage_each_time() -> None:
    one, other = open_storage("memory:"), open_storage("memory:")
    one.create("a", b"a")
    assert isinstance(one, MemoryStorage)
    assert other.stat("a") is None


def test_an_s3_url_sets_up_the_client() -> None:
    storage = open_storage(
        "s3://checkpoints/prod/eu/?endpoint=https://minio.internal:9000&region=eu-central-1&addressing=path"
    )
    assert isinstance(storage, S3Storage)
    assert storage.url == "s3://checkpoints/prod/eu"
    assert storage._client.meta.endpoint_url == "https://minio.internal:9000"


def test_an_s3_url_needs_only_a_bucket() -> None:
    assert open_storage("s3://checkpoints?region=us-east-1").url == "s3://checkpoints"


def test_a_profile_that_does_not_exist_is_a_clear_error() -> None:
    with pytest.raises(Misused, match="no-such-profile"):
        open_storage("s3://checkpoints?profile=no-such-profile")


def test_a_service_for_credentials_that_does_not_answer_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise EndpointConnectionError(endpoint_url="http://169.254.169.254")

    monkeypatch.setattr("boto3.Session.client", refuse)
    with pytest.raises(Unreachable, match="hands out the credentials"):
        open_storage("s3://checkpoints")


def test_the_client_gives_up_in_minutes_and_not_in_hours() -> None:
    client = connect(endpoint="http://127.0.0.1:1", region="us-east-1", addressing="virtual", profile=None)
    config = client.meta.config  # type: ignore[attr-defined]
    assert (config.retries["mode"], config.retries["total_max_attempts"]) == ("standard", 5)
    assert config.connect_timeout + config.read_timeout <= 120
    assert config.s3["addressing_style"] == "virtual"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "relative/path",
        "gs://bucket/prefix",
        "memory:x",
        "file://host/path",
        "file:relative",
        "file:///path?x=1",
        "s3://",
        "s3:///prefix",
        "s3://bucket#fragment",
        "s3://bucket?colour=red",
        "s3://bucket?region=",
        "s3://bucket?region=a&region=b",
        "s3://bucket?addressing=sideways",
        "s3://bucket?endpoint=minio.internal:9000",
        "s3://bucket?endpoint=ftp://minio.internal",
        "s3://[bucket",
    ],
)
def test_any_other_url_is_refused_with_what_is_possible(url: str) -> None:
    with pytest.raises(Misused, match=r"Use an absolute path, file:///path, memory:, s3://bucket/.*, or hdfs://"):
        open_storage(url)


@pytest.mark.parametrize(
    "url",
    [
        f"s3://AKIAEXAMPLE:{SECRET}@bucket/prefix",
        f"s3://AKIAEXAMPLE:{SECRET}/x@bucket/prefix",
        f"s3://bucket?aws_secret_access_key={SECRET}",
        f"s3://bucket?endpoint=https://user:{SECRET}@minio.internal",
        f"s3a://AKIAEXAMPLE:{SECRET}@bucket/prefix",
        f"hdfs://AKIAEXAMPLE:{SECRET}@namenode/path",
        f"hdfs://namenode/path?password={SECRET}",
        f"hdfs://namenode/path?webhdfs=AKIAEXAMPLE:{SECRET}@namenode",
    ],
)
def test_credentials_in_a_url_are_refused_and_never_repeated(url: str) -> None:
    with pytest.raises(Misused) as refused:
        open_storage(url)
    assert SECRET not in str(refused.value)
    assert "AKIAEXAMPLE" not in str(refused.value)


def test_a_prefix_that_leaves_the_bucket_is_refused() -> None:
    with pytest.raises(UnsafePath):
        open_storage("s3://bucket/a/../b")


def test_an_hdfs_url_says_where_spark_and_where_python_finds_it() -> None:
    place = read_place(urlsplit("hdfs://namenode:8020/checkpoints/prod/?webhdfs=gateway.internal:50070&user=spark"))
    assert place.url == "hdfs://namenode:8020/checkpoints/prod"
    assert (place.host, place.port, place.user) == ("gateway.internal", 50070, "spark")
    least = read_place(urlsplit("hdfs://namenode:8020/"))
    assert (least.root, least.host, least.port, least.user) == ("", "namenode", 9870, None)
    storage = open_storage("hdfs://namenode:8020/checkpoints?user=spark")
    assert isinstance(storage, HdfsStorage)
    assert storage.url == "hdfs://namenode:8020/checkpoints"


def test_on_hdfs_we_are_who_hadoop_would_be(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HADOOP_USER_NAME", "LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.getuid", lambda: 2**31 - 7)  # as in a container
    with pytest.raises(Misused, match="set HADOOP_USER_NAME"):
        open_storage("hdfs://namenode:8020/path")
    monkeypatch.setenv("HADOOP_USER_NAME", "spark")
    assert connect_hdfs(read_place(urlsplit("hdfs://namenode:8020/path")))._fs.user == "spark"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "url",
    [
        "hdfs:///path",
        "hdfs://namenode:rpc/path",
        "hdfs://namenode/päth",
        "hdfs://namenode/path#fragment",
        "hdfs://namenode/path?colour=red",
        "hdfs://namenode/path?kerberos=true",
        "hdfs://namenode/path?user=",
        "hdfs://namenode/path?user=a&user=b",
        "hdfs://namenode/path?user=a b",
        "hdfs://namenode/path?webhdfs=http://namenode:9870",
    ],
)
def test_any_other_hdfs_url_is_refused_with_what_is_possible(url: str) -> None:
    with pytest.raises(Misused, match=r"Write hdfs://namenode:8020/path\?webhdfs=namenode:9870&user=…"):
        open_storage(url)


def test_hdfs_without_its_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("hdfs", "hdfs_client"):
        monkeypatch.delitem(sys.modules, f"airflow_provider_ckpt.storage.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "fsspec.implementations.webhdfs", None)
    with pytest.raises(Misused, match=r"HDFS needs fsspec.*: pip install 'airflow-provider-ckpt\[hdfs\]'"):
        open_storage("hdfs://namenode:8020/path")


def test_a_local_storage_loads_no_client_of_another(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from airflow_provider_ckpt.storage import open_storage\n"
        "storage = open_storage(sys.argv[1])\n"
        "storage.create('a', b'a')\n"
        "assert storage.read('a') == b'a'\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & {'boto3', 'fsspec', 'requests'}))\n"
    )
    ran = subprocess.run([sys.executable, "-c", program, tmp_path], check=True, capture_output=True, text=True)
    assert ran.stdout == "[]\n"


def test_every_public_name_exists() -> None:
    assert all(hasattr(airflow_provider_ckpt.storage, name) for name in airflow_provider_ckpt.storage.__all__)
    assert sorted(airflow_provider_ckpt.storage.__all__) == airflow_provider_ckpt.storage.__all__
