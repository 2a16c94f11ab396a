"""The checksums that Hadoop keeps beside every local file (`.X.crc`): damage in a dead attempt's location is found.

The file: `crc` and a zero byte, the number of bytes per checksum, then one big-endian CRC-32 for each of them.

Spark writes a file under a temporary name (`.X.<uuid>.tmp`) and renames it, and only then its checksums. Who is killed
in between leaves a file whose checksums still have the temporary name: those count as well.
"""

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

_MAGIC = b"crc\x00"
_HEADER = 8


def has_checksums(file: Path) -> bool:
    return next(_beside(file), None) is not None


def find_damage(file: Path) -> str | None:
    """What is wrong with a file by its checksums; None when nothing is.

    :raises FileNotFoundError: when it has none.
    """
    if not has_checksums(file):
        raise FileNotFoundError(f"{file} has no checksums")
    is_intact = any(_is_match(file, sums.read_bytes()) for sums in _beside(file))
    return None if is_intact else f"{file} does not match its checksums"


def copy_checksums(file: Path, target: Path) -> None:
    """Those of an intact file, if it has some, for a second name of it."""
    found = list(_beside(file))
    for sums in found:
        if len(found) == 1 or _is_match(file, sums.read_bytes()):
            checksums_of(target).write_bytes(sums.read_bytes())
            return


def _is_match(file: Path, sums: bytes) -> bool:
    if sums[:4] != _MAGIC or len(sums) < _HEADER:
        return False
    (size,) = struct.unpack(">I", sums[4:_HEADER])
    count = (len(sums) - _HEADER) // 4
    expected = struct.unpack(f">{count}I", sums[_HEADER : _HEADER + 4 * count])
    return bool(size) and tuple(_checksums(file, size)) == expected


def _beside(file: Path) -> Iterator[Path]:
    """Its own checksums, then those that still have a temporary name."""
    if (own := checksums_of(file)).is_file():
        yield own
    yield from sorted(file.parent.glob(f"..{file.name}.*.tmp.crc"))


def checksums_of(file: Path) -> Path:
    return file.parent / f".{file.name}.crc"


def _checksums(file: Path, size: int) -> list[int]:
    with file.open("rb") as stream:
        return [zlib.crc32(chunk) for chunk in iter(lambda: stream.read(size), b"")]
