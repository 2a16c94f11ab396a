"""The checksums that Hadoop keeps beside every local file (`.X.crc`): damage in a dead attempt's location is found.

The file: `crc` and a zero byte, the number of bytes per checksum, then one big-endian CRC-32 for each of them.
"""

import struct
import zlib
from pathlib import Path

_MAGIC = b"crc\x00"
_HEADER = 8


def find_damage(file: Path) -> str | None:
    """What is wrong with a file by its checksums; None when nothing is, or when it has none."""
    try:
        sums = (file.parent / f".{file.name}.crc").read_bytes()
    except FileNotFoundError:
        return None
    if sums[:4] != _MAGIC or len(sums) < _HEADER:
        return f"the checksums of {file} can not be read"
    (size,) = struct.unpack(">I", sums[4:_HEADER])
    expected = struct.unpack(f">{(len(sums) - _HEADER) // 4}I", sums[_HEADER:])
    found = tuple(_checksums(file, size))
    return None if found == expected else f"{file} does not match its checksums"


def _checksums(file: Path, size: int) -> list[int]:
    with file.open("rb") as stream:
        return [zlib.crc32(chunk) for chunk in iter(lambda: stream.read(size), b"")]
