"""A folder in an S3 bucket: paths to keys, and every plain request, with errors that people understand."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import BinaryIO
from urllib.parse import urlsplit

from botocore.exceptions import ClientError

from airflow_provider_ckpt.protocol.errors import CkptError, OutcomeUnknown
from airflow_provider_ckpt.protocol.paths import check_path
from airflow_provider_ckpt.storage.base import CHUNK_BYTES, Digest, Partial, StoredFile, check_prefix, digest_stream
from airflow_provider_ckpt.storage.refusals import no_such_file
from airflow_provider_ckpt.storage.s3_client import Body, ObjectHead, S3Client
from airflow_provider_ckpt.storage.s3_errors import (
    S3_ERRORS,
    S3Error,
    explained,
    is_absent,
    is_unclear,
    kind,
    no_such_bucket,
)
from airflow_provider_ckpt.storage.s3_lifecycle import days_of_uploads
from airflow_provider_ckpt.storage.s3_stream import S3Stream


class S3Bucket:
    """What `S3Storage` asks S3 for. `client` and `name` are for the requests that it makes itself."""

    def __init__(self, client: S3Client, name: str, prefix: str) -> None:
        folder = check_prefix(prefix.strip("/"))
        self.client, self.name = client, name
        self._root = f"{folder}/" if folder else ""
        self._was_seen = False

    @property
    def url(self) -> str:
        return f"s3://{self.name}/{self._root}".rstrip("/")

    @property
    def where(self) -> str:
        """For people: the bucket and the host, not the whole endpoint."""
        return f"bucket {self.name!r} at {urlsplit(self.client.meta.endpoint_url).hostname}"

    def key(self, path: str) -> str:
        return self._root + check_path(path)

    @property
    def upload_days(self) -> int | None:
        """The fewest days that an upload in parts may wait here; None: for ever, or nobody says."""
        return days_of_uploads(self.client, self.name, self._root)

    def head(self, path: str) -> ObjectHead | None:
        key = self.key(path)
        with self.clear_errors(path):
            try:
                return self.client.head_object(Bucket=self.name, Key=key)
            except ClientError as error:
                if not is_absent(error):
                    raise
        self._require_bucket()
        return None

    def open(self, path: str) -> BinaryIO:
        get = partial(self._get, self.key(path))
        with self.clear_errors(path):
            body = get(0)
        return io.BufferedReader(S3Stream(body, get, partial(self.explained, path=path)), CHUNK_BYTES)

    def digest(self, path: str) -> Digest:
        with self.open(path) as stream:
            return digest_stream(stream)

    def list(self, prefix: str) -> Iterator[StoredFile]:
        pages = self.client.get_paginator("list_objects_v2")
        with self.clear_errors(prefix):
            for page in pages.paginate(Bucket=self.name, Prefix=self._root + prefix):
                for item in page.get("Contents", []):
                    if not item["Key"].endswith("/"):  # consoles make empty objects to show folders
                        yield StoredFile(path=self._path(item["Key"]), size=item["Size"])

    def uploads(self, prefix: str) -> Iterator[Partial]:
        pages = self.client.get_paginator("list_multipart_uploads")
        with self.clear_errors(prefix):
            for page in pages.paginate(Bucket=self.name, Prefix=self._root + prefix):
                for item in page.get("Uploads", []):
                    yield Partial(path=self._path(item["Key"]), token=item["UploadId"])

    @contextmanager
    def clear_errors(self, path: str) -> Iterator[None]:
        try:
            yield
        except S3_ERRORS as error:
            if is_absent(error):
                raise no_such_file(path, self.url) from error
            raise self.explained(error, path) from error

    def explained(self, error: S3Error, path: str) -> CkptError:
        return explained(error, path, self.where)

    def doubtful(self, error: S3Error, path: str) -> CkptError:
        """OutcomeUnknown where it is so; else what S3 clearly said."""
        if not is_unclear(error):
            return self.explained(error, path)
        return OutcomeUnknown(
            f"{self.where} did not say whether it changed {path} ({kind(error)}), and it may still do so. "
            "Read it again later; delete nothing because of this."
        )

    def _require_bucket(self) -> None:
        """HEAD says 404 for a missing object and for a missing bucket alike: find out once which it is."""
        if self._was_seen:
            return
        try:
            self.client.head_bucket(Bucket=self.name)
        except S3_ERRORS as error:
            if is_absent(error):
                raise no_such_bucket(self.where) from error
            return  # not allowed to look: proves nothing
        self._was_seen = True

    def _get(self, key: str, position: int) -> Body:
        if position:
            return self.client.get_object(Bucket=self.name, Key=key, Range=f"bytes={position}-")["Body"]
        return self.client.get_object(Bucket=self.name, Key=key)["Body"]

    def _path(self, key: str) -> str:
        return key.removeprefix(self._root)
