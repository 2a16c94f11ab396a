"""From a URL to a storage: the one place that knows which kinds there are."""

import re
from pathlib import Path
from typing import Literal
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from airflow_provider_ckpt.protocol.errors import Misused
from airflow_provider_ckpt.storage.base import Storage
from airflow_provider_ckpt.storage.credentials import Credentials
from airflow_provider_ckpt.storage.hdfs_place import HDFS_FORM, read_place
from airflow_provider_ckpt.storage.local import LocalStorage
from airflow_provider_ckpt.storage.memory import MemoryStorage

_POSSIBLE = (
    "Use an absolute path, file:///path, memory:, "
    f"s3://bucket/prefix?endpoint=https://…&region=…&addressing=path|virtual&profile=…, or {HDFS_FORM}"
)
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._\-]{1,254}")
_SETTINGS = frozenset({"endpoint", "region", "addressing", "profile"})


def open_storage(url: str, credentials: Credentials | None = None) -> Storage:
    """The storage at `url`; nothing is read or written yet, but boto3 looks for its credentials if none are given.

    ::

        open_storage("/var/lib/ckpt")
        open_storage("s3://checkpoints/prod?endpoint=https://minio.internal:9000&addressing=path")
        open_storage("hdfs://namenode:8020/checkpoints?webhdfs=namenode:9870&user=spark")

    :raises Misused: when it is none of these, or carries credentials. The text never repeats the URL,
        because it may hold a secret.
    """
    if url.startswith("/"):
        return LocalStorage(Path(url))
    parts = _split(url)
    match parts.scheme:
        case "file":
            return _open_local(parts)
        case "memory" if url == "memory:":
            return MemoryStorage()
        case "s3":
            return _open_s3(parts, credentials)
        case "hdfs":
            return _open_hdfs(parts)
    raise Misused(f"There is no storage for a URL that begins with {parts.scheme or 'no scheme'!r}. {_POSSIBLE}")


def _open_local(parts: SplitResult) -> Storage:
    path = unquote(parts.path)
    if parts.netloc not in ("", "localhost") or parts.query or parts.fragment or not path.startswith("/"):
        raise Misused(f"A file URL has three slashes, an absolute path and nothing else. {_POSSIBLE}")
    return LocalStorage(Path(path))


def _open_s3(parts: SplitResult, credentials: Credentials | None) -> Storage:
    _refuse_credentials(parts)
    if not _BUCKET.fullmatch(parts.netloc) or parts.fragment:
        raise Misused(f"An S3 URL has a bucket after its two slashes, and no '#'. {_POSSIBLE}")
    settings = _settings(parts.query)
    # boto3 takes half a second and 30 MB: only for those who use it.
    from airflow_provider_ckpt.storage.s3 import S3Storage  # noqa: PLC0415
    from airflow_provider_ckpt.storage.s3_client import connect  # noqa: PLC0415

    client = connect(
        endpoint=_endpoint(settings.get("endpoint")),
        region=settings.get("region"),
        addressing=_addressing(settings.get("addressing", "auto")),
        profile=settings.get("profile"),
        credentials=credentials,
    )
    return S3Storage(client, parts.netloc, parts.path)


def _open_hdfs(parts: SplitResult) -> Storage:
    place = read_place(parts)
    try:
        from airflow_provider_ckpt.storage.hdfs import HdfsStorage  # noqa: PLC0415 - requests, for those who use it
        from airflow_provider_ckpt.storage.hdfs_client import connect  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise Misused(f"HDFS needs {error.name}: pip install 'airflow-provider-ckpt[hdfs]'.") from error
    return HdfsStorage(connect(place), place)


def _settings(query: str) -> dict[str, str]:
    pairs = parse_qsl(query, keep_blank_values=True)
    settings = dict(pairs)
    if len(settings) != len(pairs) or not settings.keys() <= _SETTINGS or not all(settings.values()):
        raise Misused(
            f"An S3 URL takes {', '.join(sorted(_SETTINGS))}, each once and with a value. Credentials do not belong "
            f"there: boto3 finds them in the environment, a profile or the instance's role. {_POSSIBLE}"
        )
    return settings


def _endpoint(endpoint: str | None) -> str | None:
    if endpoint is None:
        return None
    parts = _split(endpoint)
    _refuse_credentials(parts)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise Misused(f"The endpoint of an S3 URL begins with http:// or https:// and names a host. {_POSSIBLE}")
    return endpoint


def _addressing(name: str) -> Literal["auto", "path", "virtual"]:
    match name:
        case "auto" | "path" | "virtual":
            return name
    raise Misused(f"The addressing of an S3 URL is auto, path or virtual. {_POSSIBLE}")


def _refuse_credentials(parts: SplitResult) -> None:
    if "@" in parts.netloc:
        raise Misused(
            "Credentials do not belong in a storage's URL, which is logged and shown: take them out (and renew them). "
            "boto3 finds them in the environment, a profile or the instance's role."
        )


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:
        raise Misused(f"The storage's URL can not be read. {_POSSIBLE}") from None
