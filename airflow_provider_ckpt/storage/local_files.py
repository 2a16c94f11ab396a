"""How a local file comes into being: complete under a temporary name first, then under its own, never over another.

A temporary file lies beside the file that it becomes and is called `.<name>.<random>.partial`.
"""

import errno
import fcntl
import hashlib
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from airflow_provider_ckpt.storage.base import CHUNK_BYTES, Digest, digest_stream
from airflow_provider_ckpt.storage.refusals import target_taken

SMALLEST_SHARED = 64 * 1024  # bytes: a smaller file of a running query is copied, which costs as much as a second name
_PARTIAL = re.compile(r"\.(.+)\.[0-9a-f]{16}\.partial")
_LINK_REFUSED = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})


def becomes(name: str) -> str | None:
    """The name that a temporary file is for; None when `name` is not that of a temporary file."""
    match = _PARTIAL.fullmatch(name)
    return match[1] if match else None


def temporary_name(name: str) -> str:
    """A free name that nobody takes for a finished file."""
    return f".{name}.{secrets.token_hex(8)}.partial"


@contextmanager
def temporary_for(final: Path) -> Iterator[Path]:
    """A free name beside `final`; whatever is under it at the end goes away."""
    temporary = final.with_name(temporary_name(final.name))
    try:
        yield temporary
    finally:
        with suppress(OSError):  # what is left is a partial that cleanup finds: no reason to doubt the write itself
            temporary.unlink()


@contextmanager
def laid_out(target: Path) -> Iterator[Path]:
    """A temporary name to fill, which then becomes `target`.

    :raises AlreadyExists: when there is something at `target`, before or after filling.
    """
    if target.is_symlink() or target.exists():
        raise target_taken(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    with temporary_for(target) as temporary:
        yield temporary
        if not publish(temporary, target):
            raise target_taken(target)


def publish(temporary: Path, final: Path) -> bool:
    """Give a complete file its own name, atomically; False when the name is taken."""
    try:
        os.link(temporary, final)
    except FileExistsError:
        return False
    except OSError as error:
        _only_if_links_are_refused(error)
        return _publish_under_lock(temporary, final)
    return True


def link_or_copy(source: Path, temporary: Path, *, is_durable: bool = False, smallest: int = 0) -> None:
    """A second name for a file that is on the disk already; where that is refused, a copy.

    :param smallest: files below this size are copied: so damage to one is not damage to the other.
    """
    if source.stat().st_size < smallest:
        _copy(source, temporary, is_durable=is_durable)
        return
    try:
        os.link(source, temporary)
    except OSError as error:
        _only_if_links_are_refused(error)
        _copy(source, temporary, is_durable=is_durable)


def store_linked_or_copied(source: Path, temporary: Path) -> Digest:
    """As `link_or_copy` for a file of which nobody knows whether it is on the disk yet; tells what was stored."""
    if source.stat().st_size < SMALLEST_SHARED:
        return _copy(source, temporary, is_durable=True)
    try:
        os.link(source, temporary)
    except OSError as error:
        _only_if_links_are_refused(error)
        return _copy(source, temporary, is_durable=True)
    # Hashed under the new name: whatever happens to the source's name, this is the file that is published.
    with temporary.open("rb") as linked:
        os.fsync(linked.fileno())
        return digest_stream(linked)


def write_durably(temporary: Path, data: bytes) -> None:
    with temporary.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def have_same_content(one: Path, other: Path) -> bool:
    """Byte for byte; two names of one file are not read."""
    if one.samefile(other):
        return True
    if not other.is_file() or one.stat().st_size != other.stat().st_size:
        return False
    with one.open("rb") as first, other.open("rb") as second:
        return digest_stream(first) == digest_stream(second)


def make_folders(folder: Path) -> None:
    """Make a folder and its parents so that they survive a power failure."""
    if folder.is_dir():
        return
    make_folders(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power failure."""
    with _opened_folder(folder) as descriptor:
        os.fsync(descriptor)


def prune(folder: Path, root: Path) -> None:
    """Remove `folder` and its parents as far as they are empty; `rmdir` itself refuses one that is not."""
    with suppress(OSError):
        while folder != root:
            folder.rmdir()
            folder = folder.parent


def copy_stream(source: BinaryIO, target: BinaryIO) -> Digest:
    """Copy and hash in one pass."""
    sha256, size = hashlib.sha256(), 0
    while chunk := source.read(CHUNK_BYTES):
        target.write(chunk)
        sha256.update(chunk)
        size += len(chunk)
    return Digest(size=size, sha256=sha256.hexdigest())


def _copy(source: Path, temporary: Path, *, is_durable: bool) -> Digest:
    with source.open("rb") as original, temporary.open("xb") as copy:
        digest = copy_stream(original, copy)
        copy.flush()
        if is_durable:
            os.fsync(copy.fileno())
    return digest


def _only_if_links_are_refused(error: OSError) -> None:
    if error.errno not in _LINK_REFUSED:
        raise error


def _publish_under_lock(temporary: Path, final: Path) -> bool:
    # Some file systems (FUSE, SMB, mounts into containers) have no hard links, and a rename would overwrite.
    # There the writers of one host exclude each other by a lock on the folder.
    with _opened_folder(final.parent) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if final.is_symlink() or final.exists():
            return False
        temporary.rename(final)
        return True


@contextmanager
def _opened_folder(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
