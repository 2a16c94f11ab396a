"""Names and paths: what may be called what, and where things lie below a storage root.

::

    <pipeline>/identity                               which store it belongs to
    <pipeline>/files/<attempt>/<checkpoint>/<name>    immutable, shared by all checkpoints that name them
    <pipeline>/checkpoints/<id>/manifest              written create-only after the acks
    <pipeline>/checkpoints/<id>/decided               written after the decision, beside the manifest
    <pipeline>/savepoints/<name>.<id>/…               self-contained: manifest, decided and its own files/
"""

import re

from airflow_provider_ckpt.protocol.errors import Misused, UnsafePath

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]{0,99}")
_NOWHERE = frozenset({"", ".", ".."})
_MAX_PATH_BYTES = 1000  # S3 allows 1,024 for the whole key, root prefix included


def check_name(what: str, name: str) -> str:
    """Return `name` when it may name a pipeline or a savepoint."""
    if not _NAME.fullmatch(name):
        raise Misused(
            f"{name!r} can not name a {what}: use 1 to 100 letters, digits, '_', '-' and '.', "
            "beginning with a letter or a digit."
        )
    if what == "savepoint" and name.isdecimal():
        raise Misused(f"{name!r} can not name a savepoint: a number alone means the id of a checkpoint.")
    return name


def check_path(path: str) -> str:
    """Return `path` when it is relative, normal and stays below its root on every storage."""
    parts = path.split("/")
    is_safe = (
        path
        and _NOWHERE.isdisjoint(parts)
        and "\\" not in path
        and path.isprintable()
        and len(path.encode()) <= _MAX_PATH_BYTES
    )
    if not is_safe:
        raise UnsafePath(f"The path {path!r} is refused: a stored path is relative and never leaves its root.")
    return path


def identity_path(pipeline: str) -> str:
    return f"{pipeline}/identity"


def file_path(attempt: int, checkpoint: int, name: str) -> str:
    """Where an attempt puts a file that is new with this checkpoint, below the pipeline's folder."""
    return check_path(f"files/{attempt}/{checkpoint}/{name}")


def owner_of_path(pipeline: str, path: str) -> int | None:
    """The checkpoint that a stored file was written for, read off its path below the root; None for a foreign path."""
    match path.split("/", 4):
        case [folder, *_] if folder != pipeline:
            return None
        case [_, "files", _, checkpoint, _] if checkpoint.isdecimal():
            return int(checkpoint)
        case [_, "checkpoints", checkpoint, *_] if checkpoint.isdecimal():
            return int(checkpoint)
        case [_, "savepoints", folder, *_] if (checkpoint := folder.rpartition(".")[2]).isdecimal():
            return int(checkpoint)
    return None


def home(pipeline: str, checkpoint: int, savepoint: str | None) -> str:
    """The folder of a checkpoint's manifest."""
    if savepoint is None:
        return f"{pipeline}/checkpoints/{checkpoint}"
    return f"{pipeline}/savepoints/{savepoint}.{checkpoint}"


def manifest_path(home_of_checkpoint: str) -> str:
    return f"{home_of_checkpoint}/manifest"


def decided_path(home_of_checkpoint: str) -> str:
    return f"{home_of_checkpoint}/decided"


def home_of_manifest(path: str) -> str:
    return path.rpartition("/")[0]
