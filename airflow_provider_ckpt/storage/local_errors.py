"""What the operating system refused, as an error that says what to do next."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from airflow_provider_ckpt.protocol.errors import CkptError, Misused, NotFound, TryAgain, Unreachable

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_MISNAMED = frozenset({errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG})


@contextmanager
def clear_errors(path: str, place: Path) -> Iterator[None]:
    """Let no OSError out: `path` is what was asked for, `place` the folder that people know."""
    try:
        yield
    except OSError as error:
        raise _explained(error, path, place) from error


def _explained(error: OSError, path: str, place: Path) -> CkptError:
    if error.errno in _FULL:
        return TryAgain(
            f"The disk below {place} is full: {path} was not written, and nothing half-written is visible. "
            "Free space there (cleanup may delete old checkpoints), then run this again."
        )
    if error.errno in _FORBIDDEN:
        return Unreachable(
            f"{path} below {place} may not be touched ({error.strerror}). Give the user of this process "
            "the right to read and write there, then run this again."
        )
    return _explained_by_name(error, path, place)


def _explained_by_name(error: OSError, path: str, place: Path) -> CkptError:
    if error.errno == errno.ENOENT:
        return NotFound(f"There is no file {path} below {place}: it was deleted meanwhile.")
    if error.errno in _MISNAMED:
        return Misused(
            f"{path} can not be a file below {place} ({error.strerror}): a part of it is too long, "
            "or is a file where a folder is needed, or the reverse. Choose another name."
        )
    return Unreachable(f"The disk below {place} did not serve {path}: {error.strerror}. Check it, then run this again.")
