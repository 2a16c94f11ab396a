"""A storage below a folder: a local disk, or a network file system that all hosts mount at the same place."""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeVar

from airflow_provider_ckpt.protocol.errors import Misused, OutcomeUnknown, UnsafePath
from airflow_provider_ckpt.protocol.paths import check_path
from airflow_provider_ckpt.storage.base import Created, Digest, Partial, StoredFile, check_prefix
from airflow_provider_ckpt.storage.local_errors import clear_errors
from airflow_provider_ckpt.storage.local_files import (
    SMALLEST_SHARED,
    becomes,
    have_same_content,
    laid_out,
    link_or_copy,
    make_folders,
    prune,
    publish,
    store_linked_or_copied,
    sync_folder,
    temporary_for,
    write_durably,
)
from airflow_provider_ckpt.storage.refusals import never_settled, no_such_file, no_such_source, other_content

_TRIES = 1000  # each one is lost to somebody else who has got on
Staged = TypeVar("Staged")


class LocalStorage:
    """Files below `root`, which the first write makes.

    ::

        storage = LocalStorage(Path("/var/lib/ckpt"))
        storage.put_file("orders/files/3/17/41.zip", Path("/var/spark/state/0/41.zip"))

    Guaranteed: a name appears complete and flushed to the disk, or not at all, and is never overwritten; on the same
    file system no byte is copied. Stored and source file are then one file with two names: never open either for
    writing. Not guaranteed: on file systems without hard links, writers on different hosts do not see each other.
    After a crash there may be a `.partial` file; `partials` finds it.

    :param root: the folder; links below it may not lead out of it.
    """

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()

    @property
    def url(self) -> str:
        return self._root.as_uri()

    @property
    def is_remote(self) -> bool:
        return False

    def create(self, path: str, data: bytes) -> Created:
        created, _ = self._write_once(path, partial(_stage_bytes, data))
        return created

    def read(self, path: str) -> bytes:
        with self.open(path) as stream, clear_errors(path, self._root):
            return stream.read()

    def open(self, path: str) -> BinaryIO:
        with clear_errors(path, self._root):
            return self._existing(path).open("rb")

    def put_file(self, path: str, source: Path) -> Digest:
        _, digest = self._write_once(path, partial(_stage_file, source))
        return digest

    def fetch(self, path: str, target: Path) -> None:
        stored = self._existing(path)
        with clear_errors(path, target.parent), laid_out(target) as temporary:
            link_or_copy(stored, temporary, smallest=SMALLEST_SHARED)

    def copy(self, source: str, target: str) -> None:
        original = self._existing(source)
        self._write_once(target, partial(link_or_copy, original, is_durable=True))

    def stat(self, path: str) -> StoredFile | None:
        file = self._locate(path)
        with clear_errors(path, self._root), suppress(FileNotFoundError, NotADirectoryError):
            return StoredFile(path=path, size=file.stat().st_size) if file.is_file() else None
        return None

    def list(self, prefix: str) -> Iterator[StoredFile]:
        return self._list(prefix, self._folder_of(prefix))

    def delete(self, path: str) -> bool:
        file = self._locate(path)
        with clear_errors(path, self._root):
            if not file.is_file() or not _unlinked(file):
                return False
        prune(file.parent, self._root)
        return True

    def partials(self, prefix: str) -> Iterator[Partial]:
        return self._partials(prefix, self._folder_of(prefix))

    def discard(self, partial: Partial) -> None:
        check_path(partial.path)
        file = self._inside(check_path(partial.token))
        if becomes(file.name) is None:
            raise Misused(f"{partial.token} in {self.url} is not what an interrupted write left: it stays.")
        with clear_errors(partial.token, self._root):
            file.unlink(missing_ok=True)
        prune(file.parent, self._root)

    def _write_once(self, path: str, stage: Callable[[Path], Staged]) -> tuple[Created, Staged]:
        """Stage a temporary file, give it its name, and make the name durable."""
        final = self._locate(path)
        with clear_errors(path, self._root):
            outcome = self._publish_staged(path, final, stage)
        try:
            sync_folder(final.parent)
        except FileNotFoundError:  # written, and by now deleted with its folder: nothing is left to make durable
            return outcome
        except OSError as error:
            raise OutcomeUnknown(
                f"{path} was written to {self.url}, but may not survive a power failure: {error.strerror}. "
                "Read it again before you rely on it."
            ) from error
        return outcome

    def _publish_staged(self, path: str, final: Path, stage: Callable[[Path], Staged]) -> tuple[Created, Staged]:
        for _ in range(_TRIES):
            # A delete beside us prunes the folder that we have just made, or takes away what we compare with.
            with suppress(FileNotFoundError):
                make_folders(final.parent)
                with temporary_for(final) as temporary:
                    staged = stage(temporary)
                    return self._publish(path, temporary, final), staged
        raise never_settled(path, self.url)

    def _publish(self, path: str, temporary: Path, final: Path) -> Created:
        if publish(temporary, final):
            return Created.NEW
        if have_same_content(temporary, final):
            return Created.SAME
        raise other_content(path, self.url)

    def _existing(self, path: str) -> Path:
        file = self._locate(path)
        with clear_errors(path, self._root):
            if file.is_file():
                return file
        raise no_such_file(path, self.url)

    def _locate(self, path: str) -> Path:
        if becomes(check_path(path).rpartition("/")[2]) is not None:
            raise UnsafePath(f"The path {path!r} is refused: its last part is kept for temporary files.")
        return self._inside(path)

    def _folder_of(self, prefix: str) -> Path:
        return self._inside(check_prefix(prefix).rpartition("/")[0])

    def _inside(self, path: str) -> Path:
        """The place of `path`, unless a symbolic link on the way leads out of the root."""
        place = self._root / path
        if self._has_link(path) and not self._resolves_inside(place):
            raise UnsafePath(f"The path {path!r} is refused: a symbolic link leads out of {self._root}.")
        return place

    def _has_link(self, path: str) -> bool:
        """Whether any folder below the root, or the file, is a symbolic link; mostly none is, and that is cheap."""
        place = str(self._root)
        for part in path.split("/"):
            place = f"{place}/{part}"
            if os.path.islink(place):  # noqa: PTH114 - called for every file, and several times faster
                return True
        return False

    def _resolves_inside(self, place: Path) -> bool:
        try:
            with suppress(FileNotFoundError):
                place.resolve(strict=True)
            return place.resolve().is_relative_to(self._root.resolve())
        except (OSError, RuntimeError):  # links that lead in a circle
            return False

    def _list(self, prefix: str, folder: Path) -> Iterator[StoredFile]:
        for path, entry in self._walk(prefix, folder):
            if becomes(entry.name) is None and path.startswith(prefix):
                with suppress(FileNotFoundError):  # deleted while we look
                    yield StoredFile(path=path, size=entry.stat().st_size)

    def _partials(self, prefix: str, folder: Path) -> Iterator[Partial]:
        for token, entry in self._walk(prefix, folder):
            name = becomes(entry.name)
            path = f"{token.removesuffix(entry.name)}{name}"
            if name is not None and path.startswith(prefix):
                yield Partial(path=path, token=token)

    def _walk(self, prefix: str, folder: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
        with clear_errors(prefix, self._root):
            yield from _files_below(folder, f"{folder.relative_to(self._root)}/".removeprefix("./"), prefix)


def _stage_bytes(data: bytes, temporary: Path) -> None:
    write_durably(temporary, data)


def _stage_file(source: Path, temporary: Path) -> Digest:
    original = source.resolve() if source.is_symlink() else source  # of a symbolic link, what it points to is stored
    if not original.exists():
        raise no_such_source(source)
    if not original.is_file():
        raise Misused(f"{source} is not a regular file: only those can be stored.")
    return store_linked_or_copied(original, temporary)


def _unlinked(file: Path) -> bool:
    try:
        file.unlink()
    except FileNotFoundError:
        return False
    return True


def _files_below(folder: Path, relative: str, prefix: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Every regular file below, in order of its whole path; symbolic links are not ours and are passed over."""
    for entry in _entries(folder):
        path = relative + entry.name
        if entry.is_dir(follow_symlinks=False):
            if f"{path}/".startswith(prefix):
                yield from _files_below(folder / entry.name, f"{path}/", prefix)
        elif entry.is_file(follow_symlinks=False):
            yield path, entry


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """Sorted as their paths are: `a.x` before `a/b`, because '.' comes before '/'."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=_path_order)
    except (FileNotFoundError, NotADirectoryError):  # never made, or pruned while we look
        return []


def _path_order(entry: os.DirEntry[str]) -> str:
    return f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name
