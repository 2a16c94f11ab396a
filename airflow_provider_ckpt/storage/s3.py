"""A storage in an S3 bucket: Amazon's, or any other that has conditional writes."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO

from botocore.exceptions import ParamValidationError

from airflow_provider_ckpt.protocol.errors import AlreadyExists, CkptError
from airflow_provider_ckpt.storage.base import Created, Digest, Partial, StoredFile, check_prefix, digest_bytes
from airflow_provider_ckpt.storage.local_errors import clear_errors
from airflow_provider_ckpt.storage.local_files import copy_stream, laid_out
from airflow_provider_ckpt.storage.refusals import never_settled, no_such_file, no_such_source, other_content
from airflow_provider_ckpt.storage.s3_bucket import S3Bucket
from airflow_provider_ckpt.storage.s3_client import ObjectHead, S3Client
from airflow_provider_ckpt.storage.s3_errors import (
    S3_ERRORS,
    S3Error,
    is_absent,
    is_conflict,
    is_no_upload,
    is_taken,
    is_unclear,
    is_unsupported,
)
from airflow_provider_ckpt.storage.s3_multipart import HashedFile, Upload, checksum_of, send_copy, send_file

MEBIBYTE = 1024 * 1024
_PAUSES_SECONDS = (0.1, 0.3, 1.0, 3.0)

# Staging a write makes nothing visible, so its failures are certain; publishing it may end in doubt.
Publish = Callable[[], object]
Stage = Callable[[], Publish]
Content = Callable[[], Digest]


class S3Storage:
    """Objects in `bucket` whose keys begin with `prefix`.

    ::

        storage = S3Storage(boto3.client("s3"), "checkpoints", "prod")
        storage.put_file("orders/files/3/17/41.zip", Path("/var/spark/state/0/41.zip"))

    Guaranteed: an object appears complete or not at all, and is never overwritten (`If-None-Match`). When S3 does not
    say whether a write happened, we look; what still can not be told is OutcomeUnknown. Not guaranteed: stores that
    ignore `If-None-Match` overwrite. After a crash there may be an upload in parts; `partials` finds it.

    :param client: a boto3 S3 client; its retries come before ours.
    :param prefix: a folder in the bucket; "" is the whole bucket.
    :param multipart_threshold: files above this many bytes go in parts.
    :param part_bytes: the size of such a part, and what a write holds in memory; S3 wants 5 MiB at least.
    :param copy_part_bytes: objects above this many bytes are copied in parts of this size.
    :param sleep: how to wait between two tries.
    """

    def __init__(
        self,
        client: S3Client,
        bucket: str,
        prefix: str = "",
        *,
        multipart_threshold: int = 16 * MEBIBYTE,
        part_bytes: int = 16 * MEBIBYTE,
        copy_part_bytes: int = 256 * MEBIBYTE,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client, self._bucket = client, S3Bucket(client, bucket, prefix)
        self._multipart_threshold, self._part_bytes = multipart_threshold, part_bytes
        self._copy_part_bytes, self._sleep = copy_part_bytes, sleep

    @property
    def url(self) -> str:
        return self._bucket.url

    @property
    def is_remote(self) -> bool:
        return True

    def create(self, path: str, data: bytes) -> Created:
        return self._create(path, data, digest_bytes(data))

    def read(self, path: str) -> bytes:
        with self.open(path) as stream:
            return stream.read()

    def open(self, path: str) -> BinaryIO:
        return self._bucket.open(path)

    def put_file(self, path: str, source: Path) -> Digest:
        key = self._bucket.key(path)
        with clear_errors(source.name, source.parent):
            if not source.exists():
                raise no_such_source(source)
            if source.stat().st_size > self._multipart_threshold:
                return self._put_in_parts(path, key, HashedFile(source))
            data = source.read_bytes()
        digest = digest_bytes(data)
        self._create(path, data, digest)
        return digest

    def begin_upload(self, path: str, source: Path) -> Upload:
        """Send a file, and leave it invisible until `finish_upload`."""
        with self._bucket.clear_errors(path):
            return send_file(
                self._client, self._bucket.name, self._bucket.key(path), HashedFile(source), self._part_bytes
            ).upload

    def finish_upload(self, path: str, upload: Upload, size: int) -> None:
        """Make what was sent visible, at once; one that is finished already stays as it is.

        :raises NotFound: when neither the upload nor an object of that size is there.
        """
        with self._bucket.clear_errors(path):
            try:
                self._client.complete_multipart_upload(
                    Bucket=self._bucket.name,
                    Key=self._bucket.key(path),
                    UploadId=upload.id,
                    MultipartUpload={"Parts": upload.completed_parts()},
                    IfNoneMatch="*",
                )
            except S3_ERRORS as error:
                there = self._bucket.head(path)
                if there is not None and there["ContentLength"] == size:
                    return
                if is_no_upload(error) or is_taken(error):
                    raise no_such_file(path, self.url) from error
                raise

    @property
    def upload_days(self) -> int | None:
        """After how many days the bucket's own rules abort what `begin_upload` has sent; None: nobody says."""
        return self._bucket.upload_days

    def fetch(self, path: str, target: Path) -> None:
        with self.open(path) as stored, clear_errors(path, target.parent), laid_out(target) as temporary:
            _write_new(temporary, stored)

    def copy(self, source: str, target: str) -> None:
        self._bucket.key(target)
        original, there = self._bucket.head(source), self._bucket.head(target)
        if original is None:
            raise no_such_file(source, self.url)
        if there is None or not _is_known_copy(original, there):
            stage = partial(self._stage_copy, source, target, original["ContentLength"])
            self._write_unless_there(target, stage, lambda: self._bucket.digest(source))

    def stat(self, path: str) -> StoredFile | None:
        head = self._bucket.head(path)
        return None if head is None else StoredFile(path=path, size=head["ContentLength"])

    def list(self, prefix: str) -> Iterator[StoredFile]:
        return self._bucket.list(check_prefix(prefix))

    def delete(self, path: str) -> bool:
        if self._bucket.head(path) is None:
            return False
        try:
            self._client.delete_object(Bucket=self._bucket.name, Key=self._bucket.key(path))
        except S3_ERRORS as error:
            raise self._bucket.doubtful(error, path) from error
        return True

    def partials(self, prefix: str) -> Iterator[Partial]:
        return self._bucket.uploads(check_prefix(prefix))

    def discard(self, partial: Partial) -> None:
        key = self._bucket.key(partial.path)
        try:
            self._client.abort_multipart_upload(Bucket=self._bucket.name, Key=key, UploadId=partial.token)
        except S3_ERRORS as error:
            if not is_no_upload(error):
                raise self._bucket.explained(error, partial.path) from error

    def _write_unless_there(self, path: str, stage: Stage, content: Content) -> None:
        """Look first, because staging is expensive."""
        if self._compared(path, content) is None:
            self._write_once(path, stage, content)

    def _write_once(self, path: str, stage: Stage, content: Content) -> Created:
        for pause in _PAUSES_SECONDS:
            with self._bucket.clear_errors(path):
                publish = stage()
            try:
                publish()
            except S3_ERRORS as error:
                created = self._outcome(error, path, content)
            else:
                return Created.NEW
            if created is not None:
                return created
            self._sleep(pause)
        raise never_settled(path, self.url)

    def _outcome(self, error: S3Error, path: str, content: Content) -> Created | None:
        """What a refused or unanswered write came to; None when it is to be tried again."""
        if is_conflict(error):
            return None
        if is_taken(error):
            return self._compared(path, content)
        if is_unclear(error):
            return self._looked_up(error, path, content)
        raise self._bucket.explained(error, path) from error

    def _looked_up(self, error: S3Error, path: str, content: Content) -> Created:
        try:
            created = self._compared(path, content)
        except AlreadyExists:
            raise
        except CkptError as unreadable:
            raise self._bucket.doubtful(error, path) from unreadable
        if created is None:  # absent now, but the request may still be under way
            raise self._bucket.doubtful(error, path) from error
        return created

    def _compared(self, path: str, content: Content) -> Created | None:
        """SAME when what is there is what we write; None when there is nothing."""
        there = self._bucket.head(path)
        if there is None:
            return None
        ours = content()
        if there["ContentLength"] != ours.size or self._bucket.digest(path) != ours:
            raise other_content(path, self.url)
        return Created.SAME

    def _create(self, path: str, data: bytes, digest: Digest) -> Created:
        put = partial(self._put, self._bucket.key(path), data, digest)
        return self._write_once(path, lambda: put, lambda: digest)

    def _put(self, key: str, data: bytes, digest: Digest) -> None:
        self._client.put_object(
            Bucket=self._bucket.name,
            Key=key,
            Body=data,
            IfNoneMatch="*",
            ChecksumAlgorithm="SHA256",
            ChecksumSHA256=checksum_of(digest),
            Metadata={"sha256": digest.sha256},
        )

    def _put_in_parts(self, path: str, key: str, file: HashedFile) -> Digest:
        send = partial(send_file, self._client, self._bucket.name, key, file, self._part_bytes)
        self._write_unless_there(path, lambda: send().complete, file.digest)
        return file.digest()

    def _stage_copy(self, source: str, target: str, size: int) -> Publish:
        if size == 0:  # it has no parts
            return partial(self._put, self._bucket.key(target), b"", digest_bytes(b""))
        if size > self._copy_part_bytes:
            return self._send_copy(source, target)
        return partial(self._copy_whole, source, target)

    def _send_copy(self, source: str, target: str) -> Publish:
        keys = self._bucket.key(source), self._bucket.key(target)
        with self._bucket.clear_errors(source):
            return send_copy(self._client, self._bucket.name, *keys, self._copy_part_bytes).complete

    def _copy_whole(self, source: str, target: str) -> None:
        try:
            self._client.copy_object(
                Bucket=self._bucket.name,
                Key=self._bucket.key(target),
                CopySource={"Bucket": self._bucket.name, "Key": self._bucket.key(source)},
                IfNoneMatch="*",
            )
        except S3_ERRORS as error:
            if is_absent(error):
                raise no_such_file(source, self.url) from error
            if not _knows_no_conditional_copy(error):
                raise
            self._send_copy(source, target)()


def _write_new(file: Path, content: BinaryIO) -> None:
    with file.open("xb") as stream:
        copy_stream(content, stream)


def _is_known_copy(original: ObjectHead, there: ObjectHead) -> bool:
    """Both carry the checksum that S3 verified when they were put: no need to read them."""
    ours, theirs = (head.get("Metadata", {}).get("sha256") for head in (original, there))
    return ours is not None and ours == theirs and original["ContentLength"] == there["ContentLength"]


def _knows_no_conditional_copy(error: S3Error) -> bool:
    """An older boto3 does not know the parameter, an older store does not know the header."""
    return isinstance(error, ParamValidationError) or is_unsupported(error)
