"""A storage on HDFS, over WebHDFS."""

import hashlib
from collections.abc import Iterator
from contextlib import closing, suppress
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from airflow_provider_ckpt.protocol.errors import CkptError, Misused, OutcomeUnknown, UnsafePath
from airflow_provider_ckpt.protocol.paths import check_path
from airflow_provider_ckpt.storage.base import (
    CHUNK_BYTES,
    Created,
    Digest,
    Partial,
    StoredFile,
    check_prefix,
    digest_stream,
)
from airflow_provider_ckpt.storage.hdfs_client import Entry, HdfsClient
from airflow_provider_ckpt.storage.hdfs_place import HdfsPlace
from airflow_provider_ckpt.storage.local_errors import clear_errors
from airflow_provider_ckpt.storage.local_files import becomes, copy_stream, laid_out, temporary_name
from airflow_provider_ckpt.storage.refusals import never_settled, no_such_file, no_such_source, other_content

_TRIES = 5


class HdfsStorage:
    """Files below a folder on HDFS, which the first write makes.

    ::

        storage = open_storage("hdfs://namenode:8020/checkpoints?webhdfs=namenode:9870&user=spark")
        storage.put_file("orders/files/3/17/41.zip", Path("/var/spark/state/0/41.zip"))

    Guaranteed: a file appears complete or not at all, and is never overwritten: it is written under a hidden name
    beside its own, and the name node renames it in one step, over nothing. When nobody says whether that was done, we
    look; what still can not be told is OutcomeUnknown. Not guaranteed: more than HDFS does for a closed file, which is
    on as many data nodes as its replication says, but may not be on their disks yet. A copy goes through this process:
    WebHDFS has none. After a crash there may be a `.partial` file; `partials` finds it.
    """

    def __init__(self, client: HdfsClient, place: HdfsPlace) -> None:
        self._client, self._place = client, place

    @property
    def url(self) -> str:
        return self._place.url

    @property
    def is_remote(self) -> bool:
        return True

    def create(self, path: str, data: bytes) -> Created:
        created, _ = self._write_once(path, BytesIO(data))
        return created

    def read(self, path: str) -> bytes:
        with self.open(path) as stream:
            return stream.read()

    def open(self, path: str) -> BinaryIO:
        stream = self._client.open(self._locate(path))
        if stream is None:
            raise no_such_file(path, self.url)
        return stream

    def put_file(self, path: str, source: Path) -> Digest:
        self._locate(path)
        with clear_errors(source.name, source.parent):
            if not source.exists():
                raise no_such_source(source)
            original = source.open("rb")
        with closing(original):
            return self._write_once(path, original)[1]

    def fetch(self, path: str, target: Path) -> None:
        with (
            self.open(path) as stored,
            clear_errors(path, target.parent),
            laid_out(target) as temporary,
            temporary.open("xb") as file,
        ):
            copy_stream(stored, file)

    def copy(self, source: str, target: str) -> None:
        self._locate(target)
        with self.open(source) as original:
            self._write_once(target, original)

    def stat(self, path: str) -> StoredFile | None:
        entry = self._client.entry(self._locate(path))
        return None if entry is None or entry.is_folder else StoredFile(path=path, size=entry.size)

    def list(self, prefix: str) -> Iterator[StoredFile]:
        for path, entry in self._walk(check_prefix(prefix)):
            if becomes(entry.name) is None and path.startswith(prefix):
                yield StoredFile(path=path, size=entry.size)

    def delete(self, path: str) -> bool:
        if self.stat(path) is None or not self._client.delete(self._locate(path)):
            return False
        self._prune(path)
        return True

    def partials(self, prefix: str) -> Iterator[Partial]:
        for token, entry in self._walk(check_prefix(prefix)):
            name = becomes(entry.name)
            path = f"{token.removesuffix(entry.name)}{name}"
            if name is not None and path.startswith(prefix):
                yield Partial(path=path, token=token)

    def discard(self, partial: Partial) -> None:
        check_path(partial.path)
        file = self._inside(partial.token)
        if becomes(file.rpartition("/")[2]) is None:
            raise Misused(f"{partial.token} in {self.url} is not what an interrupted write left: it stays.")
        self._client.delete(file)
        self._prune(partial.token)

    def _write_once(self, path: str, source: BinaryIO) -> tuple[Created, Digest]:
        """Write under a temporary name, then give it its own."""
        final, content = self._locate(path), _Hashed(source)
        temporary = f"{final.rpartition('/')[0]}/{temporary_name(final.rpartition('/')[2])}"
        try:
            self._client.send(temporary, content, to_be=final)
            created = self._publish(path, temporary, final, content.digest)
        except OutcomeUnknown:  # the rename may still come: what it would move stays
            raise
        except BaseException:
            self._forget(temporary)
            raise
        if created is Created.SAME:
            self._forget(temporary)
        return created, content.digest

    def _publish(self, path: str, temporary: str, final: str, digest: Digest) -> Created:
        for _ in range(_TRIES):
            try:
                if self._client.rename(temporary, final):
                    return Created.NEW
            except OutcomeUnknown as doubt:
                return self._looked_up(path, digest, doubt)
            if self._is_there(path, digest):
                return Created.SAME
        raise never_settled(path, self.url)

    def _looked_up(self, path: str, digest: Digest, doubt: OutcomeUnknown) -> Created:
        """What an unanswered rename came to."""
        try:
            is_there = self._is_there(path, digest)
        except CkptError as unreadable:
            raise doubt from unreadable
        if not is_there:  # absent now, but the request may still be under way
            raise doubt
        return Created.SAME

    def _is_there(self, path: str, digest: Digest) -> bool:
        """Whether what is there is what we write; False when there is nothing."""
        there = self._client.entry(self._locate(path))
        if there is None:
            return False
        if there.is_folder or there.size != digest.size or self._digest(path) != digest:
            raise other_content(path, self.url)
        return True

    def _digest(self, path: str) -> Digest:
        with self.open(path) as stored:
            return digest_stream(stored)

    def _forget(self, temporary: str) -> None:
        with suppress(CkptError):  # what is left is a partial that cleanup finds
            self._client.delete(temporary)

    def _locate(self, path: str) -> str:
        if becomes(check_path(path).rpartition("/")[2]) is not None:
            raise UnsafePath(f"The path {path!r} is refused: its last part is kept for temporary files.")
        return self._inside(path)

    def _inside(self, path: str) -> str:
        return f"{self._place.root}/{check_path(path)}"

    def _prune(self, path: str) -> None:
        """Remove the folders above a file as far as they are empty; the name node itself refuses one that is not."""
        with suppress(CkptError):
            while path := path.rpartition("/")[0]:
                self._client.delete(self._inside(path))

    def _walk(self, prefix: str) -> Iterator[tuple[str, Entry]]:
        """Every file that may begin with `prefix`, in order of its whole path."""
        return self._files_below(f"{prefix.rpartition('/')[0]}/".removeprefix("/"), prefix)

    def _files_below(self, folder: str, prefix: str) -> Iterator[tuple[str, Entry]]:
        for entry in sorted(self._client.entries(f"{self._place.root}/{folder}".rstrip("/")), key=_path_order):
            path = folder + entry.name
            if not entry.is_folder:
                yield path, entry
            elif f"{path}/".startswith(prefix):
                yield from self._files_below(f"{path}/", prefix)


class _Hashed:
    """A stream, piece by piece, and the digest of what was read."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self._sha256, self._size = stream, hashlib.sha256(), 0

    def __iter__(self) -> Iterator[bytes]:
        while chunk := self._stream.read(CHUNK_BYTES):
            self._sha256.update(chunk)
            self._size += len(chunk)
            yield chunk

    @property
    def digest(self) -> Digest:
        return Digest(size=self._size, sha256=self._sha256.hexdigest())


def _path_order(entry: Entry) -> str:
    """Sorted as their paths are: `a.x` before `a/b`, because '.' comes before '/'."""
    return f"{entry.name}/" if entry.is_folder else entry.name
