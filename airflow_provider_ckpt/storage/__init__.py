"""Where the bytes of checkpoints lie: one small interface, with a local disk, S3, HDFS and memory behind it.

::

    storage = open_storage("s3://checkpoints/prod?region=eu-central-1")
    storage.create("orders/checkpoints/17/manifest", data)

`S3Storage` is imported from `airflow_provider_ckpt.storage.s3`, so that nobody loads boto3 for a local disk;
so is `HdfsStorage`, from `airflow_provider_ckpt.storage.hdfs`.
"""

from airflow_provider_ckpt.storage.base import (
    CHUNK_BYTES,
    Created,
    Digest,
    Partial,
    Storage,
    StoredFile,
    digest_bytes,
    digest_stream,
)
from airflow_provider_ckpt.storage.local import LocalStorage
from airflow_provider_ckpt.storage.memory import MemoryStorage
from airflow_provider_ckpt.storage.opening import open_storage

__all__ = [
    "CHUNK_BYTES",
    "Created",
    "Digest",
    "LocalStorage",
    "MemoryStorage",
    "Partial",
    "Storage",
    "StoredFile",
    "digest_bytes",
    "digest_stream",
    "open_storage",
]
