"""Absolute paths in Spark's own files, which must follow when a location moves to another attempt's folder.

Found in a file source's log, in the file sink's log, and in the metadata of transformWithState.
"""

import re
from collections.abc import Sequence
from pathlib import Path

_HAS_PATHS = re.compile(r"(.*/)?(sources/[^/]+/[0-9.a-z]+|_spark_metadata/[0-9.a-z]+|_metadata/v2/[0-9]+)")

Move = tuple[Path, Path]  # from, to


def has_paths(name: str) -> bool:
    return _HAS_PATHS.fullmatch(name) is not None


def relocate(data: bytes, moves: Sequence[Move]) -> bytes:
    """The same file for the new place; a slash at the end keeps `/work/1` apart from `/work/12`."""
    for old, new in moves:
        data = data.replace(f"{old}/".encode(), f"{new}/".encode())
    return data
