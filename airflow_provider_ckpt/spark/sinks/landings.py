"""From a path or a URL to the place where a sink's files land."""

from pathlib import Path
from urllib.parse import urlsplit

from airflow_provider_ckpt.protocol.errors import Misused
from airflow_provider_ckpt.spark.sinks.landing import Landing, LocalLanding, TableLanding


def open_landing(path: str) -> Landing:
    """For plain files.

    :raises Misused: when they can not land there.
    """
    if urlsplit(path).scheme == "hdfs":
        from airflow_provider_ckpt.spark.sinks.hdfs_landing import open_hdfs_landing  # noqa: PLC0415 - as for S3

        return open_hdfs_landing(path)
    return open_table_landing(path)


def open_table_landing(path: str) -> TableLanding:
    """For the files of a table.

    :raises Misused: when they can not land there.
    """
    scheme = urlsplit(path).scheme
    if scheme == "":
        return LocalLanding(Path(path))
    if scheme == "file":
        return LocalLanding(Path(urlsplit(path).path))
    if scheme == "s3":
        from airflow_provider_ckpt.spark.sinks.s3_landing import S3Landing  # noqa: PLC0415 - boto3, for those who use it

        return S3Landing(path)
    if scheme == "hdfs":
        raise Misused("Delta and Iceberg tables can not be on HDFS yet: put them elsewhere, or use FilesSink there.")
    raise Misused(f"Files can not land at a URL that begins with {scheme!r}: use an absolute path, s3://… or hdfs://….")
