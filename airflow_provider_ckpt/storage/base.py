"""The one interface behind which checkpoints' bytes lie, whatever the storage.

Paths are relative to the storage's root and checked by `check_path`: none can leave it.
Files are immutable: every write is create-only, and nothing is ever opened for writing again.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO, Protocol

from airflow_provider_ckpt.protocol.paths import check_path

CHUNK_BYTES = 1024 * 1024


class Created(StrEnum):
    """The outcome of a create-only write. Other content under the same name raises AlreadyExists."""

    NEW = "new"
    SAME = "same"  # it was there already, byte for byte


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    path: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Partial:
    """What an interrupted write left behind: a temporary file, an upload that was never completed.

    A write that is still going on looks the same: whoever discards must know that the writer is gone.
    """

    path: str  # what it would have become
    token: str  # how the storage finds it


class Storage(Protocol):
    """Read, create-only write, copy, stat, list, delete.

    Raises, everywhere: UnsafePath for a path that would leave the root; Unreachable when the storage did not
    answer and nothing was changed; OutcomeUnknown when a write may or may not have happened.
    """

    @property
    def url(self) -> str:
        """Where it is, for people: without secrets."""

    @property
    def is_remote(self) -> bool:
        """Whether each file costs a request, so that many small ones are better one."""

    def create(self, path: str, data: bytes) -> Created:
        """Write a small file atomically and durably, only if it does not exist.

        :raises AlreadyExists: when other content is there.
        """

    def read(self, path: str) -> bytes:
        """:raises NotFound: when there is no such file."""

    def open(self, path: str) -> BinaryIO:
        """A stream over the file, to be closed by the caller.

        :raises NotFound: when there is no such file.
        """

    def put_file(self, path: str, source: Path) -> Digest:
        """Store a local file durably, only if `path` does not exist: by hard link where possible, else in parts.

        :raises AlreadyExists: when other content is there.
        """

    def fetch(self, path: str, target: Path) -> None:
        """Lay a stored file out as a new local file: by hard link where possible, never half of it.

        It is not flushed to the disk: a host that loses power loses the attempt that it was laid out for.

        :raises NotFound: when there is no such file.
        :raises AlreadyExists: when there is something at `target`; it is left alone.
        """

    def copy(self, source: str, target: str) -> None:
        """Copy within the storage without a byte through this process, only if `target` does not exist.

        :raises NotFound: when there is no `source`.
        :raises AlreadyExists: when other content is at `target`; the same content is fine.
        """

    def stat(self, path: str) -> StoredFile | None:
        """Its size; None when there is no such file."""

    def list(self, prefix: str) -> Iterator[StoredFile]:
        """Every finished file whose path begins with `prefix`, in order of path; "" is everything."""

    def delete(self, path: str) -> bool:
        """Delete; False when it was not there."""

    def partials(self, prefix: str) -> Iterator[Partial]:
        """What interrupted writes left behind below `prefix`."""

    def discard(self, partial: Partial) -> None:
        """Remove one of them; one that is gone already is fine."""


def digest_stream(stream: BinaryIO, on_bytes: Callable[[int], None] = lambda _: None) -> Digest:
    """Hash a stream without holding it in memory; `on_bytes` hears of every chunk."""
    sha256, size = hashlib.sha256(), 0
    while chunk := stream.read(CHUNK_BYTES):
        sha256.update(chunk)
        size += len(chunk)
        on_bytes(len(chunk))
    return Digest(size=size, sha256=sha256.hexdigest())


def digest_bytes(data: bytes) -> Digest:
    return Digest(size=len(data), sha256=hashlib.sha256(data).hexdigest())


def check_prefix(prefix: str) -> str:
    """Return `prefix` when everything that begins with it lies below the root; "" is the root itself."""
    if prefix:
        check_path(prefix.removesuffix("/"))
    return prefix
