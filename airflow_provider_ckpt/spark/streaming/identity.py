"""Which file it is: Spark's own files never change, so a file under an old name is the same one or a new one."""

import os
from pathlib import Path

Identity = tuple[int, int, int]  # inode, size, time of change


def identify(file: Path | int) -> Identity:
    """:param file: a path, or a file that is open."""
    stat = os.stat(file)  # noqa: PTH116 - for every file of every checkpoint
    return stat.st_ino, stat.st_size, stat.st_mtime_ns
