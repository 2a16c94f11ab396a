"""An upload in parts: nothing is visible before `complete`, and nothing is overwritten by it."""

import hashlib
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from airflow_provider_ckpt.storage.base import Digest, digest_bytes, digest_stream
from airflow_provider_ckpt.storage.s3_client import CompletedPart, S3Client
from airflow_provider_ckpt.storage.s3_errors import S3_ERRORS, is_unclear

_MAX_PARTS = 10_000  # S3 allows no more


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """An upload with all its parts, which nobody sees before it is completed."""

    id: str
    parts: tuple[str, ...]  # each "<etag> <sha256>"

    def completed_parts(self) -> list[CompletedPart]:
        pairs = [part.partition(" ") for part in self.parts]
        return [
            {"PartNumber": number, "ETag": etag, "ChecksumSHA256": checksum}
            for number, (etag, _, checksum) in enumerate(pairs, 1)
        ]


class HashedFile:
    """A local file, read once: its parts go out, its digest stays."""

    def __init__(self, source: Path) -> None:
        self._source = source
        self._digest: Digest | None = None

    def parts(self, part_bytes: int) -> Iterator[bytes]:
        sha256, size = hashlib.sha256(), 0
        step = _part_size(self._source.stat().st_size, part_bytes)
        with self._source.open("rb") as stream:
            while part := stream.read(step):
                sha256.update(part)
                size += len(part)
                yield part
        self._digest = Digest(size=size, sha256=sha256.hexdigest())

    def digest(self) -> Digest:
        """What was sent; before that, what is there to be sent."""
        if self._digest is None:
            with self._source.open("rb") as stream:
                self._digest = digest_stream(stream)
        return self._digest


class Multipart:
    """One upload on its way to one object."""

    def __init__(self, client: S3Client, bucket: str, key: str, upload_id: str) -> None:
        self._client, self._bucket, self._key, self._upload_id = client, bucket, key, upload_id
        self._parts: list[CompletedPart] = []

    @property
    def upload(self) -> Upload:
        """What is needed to complete it later, and from elsewhere."""
        parts = tuple(f"{part['ETag']} {part.get('ChecksumSHA256', '')}" for part in self._parts)
        return Upload(id=self._upload_id, parts=parts)

    def add(self, body: bytes) -> None:
        number, checksum = len(self._parts) + 1, checksum_of(digest_bytes(body))
        part = self._client.upload_part(
            Bucket=self._bucket,
            Key=self._key,
            UploadId=self._upload_id,
            PartNumber=number,
            Body=body,
            ChecksumAlgorithm="SHA256",
            ChecksumSHA256=checksum,
        )
        self._parts.append({"PartNumber": number, "ETag": part["ETag"], "ChecksumSHA256": checksum})

    def add_copy(self, source: str, first: int, last: int) -> None:
        number = len(self._parts) + 1
        part = self._client.upload_part_copy(
            Bucket=self._bucket,
            Key=self._key,
            UploadId=self._upload_id,
            PartNumber=number,
            CopySource={"Bucket": self._bucket, "Key": source},
            CopySourceRange=f"bytes={first}-{last}",
        )
        self._parts.append({"PartNumber": number, "ETag": part["CopyPartResult"]["ETag"]})

    def complete(self) -> None:
        """Make the object appear; an upload that certainly did not become one is given back."""
        try:
            self._client.complete_multipart_upload(
                Bucket=self._bucket,
                Key=self._key,
                UploadId=self._upload_id,
                MultipartUpload={"Parts": self._parts},
                IfNoneMatch="*",
            )
        except S3_ERRORS as error:
            if not is_unclear(error):
                self.abort()
            raise

    def abort(self) -> None:
        with suppress(*S3_ERRORS):  # what is left is a partial that cleanup finds
            self._client.abort_multipart_upload(Bucket=self._bucket, Key=self._key, UploadId=self._upload_id)


def send_file(client: S3Client, bucket: str, key: str, file: HashedFile, part_bytes: int) -> Multipart:
    """Send every part of a local file; the caller completes."""
    upload_id = client.create_multipart_upload(Bucket=bucket, Key=key, ChecksumAlgorithm="SHA256")["UploadId"]
    upload = Multipart(client, bucket, key, upload_id)
    with _aborted_on_failure(upload):
        for part in file.parts(part_bytes):
            upload.add(part)
    return upload


def send_copy(client: S3Client, bucket: str, source: str, target: str, part_bytes: int) -> Multipart:
    """Let S3 copy every part of an object; the caller completes."""
    head = client.head_object(Bucket=bucket, Key=source)
    size, metadata = head["ContentLength"], head.get("Metadata", {})
    upload_id = client.create_multipart_upload(Bucket=bucket, Key=target, Metadata=metadata)["UploadId"]
    upload = Multipart(client, bucket, target, upload_id)
    with _aborted_on_failure(upload):
        step = _part_size(size, part_bytes)
        for first in range(0, size, step):
            upload.add_copy(source, first, min(first + step, size) - 1)
    return upload


def checksum_of(digest: Digest) -> str:
    """As S3 wants it."""
    return b64encode(bytes.fromhex(digest.sha256)).decode()


@contextmanager
def _aborted_on_failure(upload: Multipart) -> Iterator[None]:
    try:
        yield
    except BaseException:
        upload.abort()
        raise


def _part_size(size: int, part_bytes: int) -> int:
    return max(part_bytes, -(-size // _MAX_PARTS))
