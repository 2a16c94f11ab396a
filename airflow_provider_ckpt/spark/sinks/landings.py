"""From a path or a URL to the place where a sink's files land."""

from pathlib import Path
from urllib.parse import urlsplit

from airflow_provider_ckpt.protocol.errors import Misused
from airflow_provider_ckpt.spark.sinks.landing import Landing, LocalLanding


def open_landing(path: str) -> Landing:
    """:raises Misused: when files can not land there."""
    scheme = urlsplit(path).scheme
    if scheme == "":
        return LocalLanding(Path(path))
    if scheme == "file":
        return LocalLanding(Path(urlsplit(path).path))
    if scheme == "s3":
        from airflow_provider_ckpt.spark.sinks.s3_landing import S3Landing  # noqa: PLC0415 - boto3, for those who use it

        return S3Landing(path)
    raise Misused(f"Files can not land at a URL that begins with {scheme!r}: use an absolute path, or s3://….")
