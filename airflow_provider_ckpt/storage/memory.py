"""A storage in a dictionary: for tests, for the model checker, and for trying things out."""

import threading
from collections.abc import Iterator, Mapping
from io import BytesIO
from operator import itemgetter
from pathlib import Path
from typing import BinaryIO

from airflow_provider_ckpt.protocol.paths import check_path
from airflow_provider_ckpt.storage.base import Created, Digest, Partial, StoredFile, check_prefix, digest_bytes
from airflow_provider_ckpt.storage.local_errors import clear_errors
from airflow_provider_ckpt.storage.local_files import laid_out
from airflow_provider_ckpt.storage.refusals import no_such_file, no_such_source, other_content


class MemoryStorage:
    """Files that live as long as this object, with the same outcomes and errors as the real storages.

    ::

        storage = MemoryStorage()
        before = storage.snapshot()
        storage.create("orders/checkpoints/17/manifest", b"{}")
        storage.reset(before)

    A snapshot copies names, not bytes. Threads may share the object; processes can not.
    """

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return "memory:"

    def snapshot(self) -> Mapping[str, bytes]:
        with self._lock:
            return dict(self._files)

    def reset(self, snapshot: Mapping[str, bytes]) -> None:
        with self._lock:
            self._files = dict(snapshot)

    @property
    def is_remote(self) -> bool:
        return False

    def create(self, path: str, data: bytes) -> Created:
        check_path(path)
        with self._lock:
            is_new = path not in self._files
            stored = self._files.setdefault(path, data)
        if stored != data:
            raise other_content(path, self.url)
        return Created.NEW if is_new else Created.SAME

    def read(self, path: str) -> bytes:
        try:
            return self._files[check_path(path)]
        except KeyError:
            raise no_such_file(path, self.url) from None

    def open(self, path: str) -> BinaryIO:
        return BytesIO(self.read(path))

    def put_file(self, path: str, source: Path) -> Digest:
        check_path(path)
        with clear_errors(source.name, source.parent):
            if not source.exists():
                raise no_such_source(source)
            data = source.read_bytes()
        self.create(path, data)
        return digest_bytes(data)

    def fetch(self, path: str, target: Path) -> None:
        data = self.read(path)
        with clear_errors(path, target.parent), laid_out(target) as temporary:
            temporary.write_bytes(data)

    def copy(self, source: str, target: str) -> None:
        check_path(target)
        self.create(target, self.read(source))

    def stat(self, path: str) -> StoredFile | None:
        data = self._files.get(check_path(path))
        return None if data is None else StoredFile(path=path, size=len(data))

    def list(self, prefix: str) -> Iterator[StoredFile]:
        check_prefix(prefix)
        files = sorted(self.snapshot().items(), key=itemgetter(0))
        return iter([StoredFile(path=path, size=len(data)) for path, data in files if path.startswith(prefix)])

    def delete(self, path: str) -> bool:
        check_path(path)
        with self._lock:
            return self._files.pop(path, None) is not None

    def partials(self, prefix: str) -> Iterator[Partial]:
        """Nothing: a write in memory is never interrupted halfway."""
        check_prefix(prefix)
        return iter(())

    def discard(self, partial: Partial) -> None:
        check_path(partial.path)
