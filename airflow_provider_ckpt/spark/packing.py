"""Packs: the small new files of a participant as one stored file, where each file would cost a request.

A pack is its members one after the other; the manifest says which of them a checkpoint needs, and where they lie. It
is a stored file as any other: verified as a whole, copied into savepoints, kept while a kept checkpoint names it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from airflow_provider_ckpt.protocol.errors import Corrupt
from airflow_provider_ckpt.protocol.records import FileRef, Member
from airflow_provider_ckpt.storage.refusals import no_such_source

_SMALL = 1024 * 1024  # moving so many bytes takes as long as a request, about
_PACK = 8 * 1024 * 1024  # what a task holds in memory for one, and what is kept for the last of its members


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFile:
    name: str  # in the layout that a restore makes
    source: str
    size: int


def plan_packs(files: Iterable[NewFile]) -> tuple[list[NewFile], list[list[NewFile]]]:
    """What is stored alone, and what goes together; always the same for the same files."""
    alone: list[NewFile] = []
    packs: list[list[NewFile]] = []
    room = 0  # in the last pack
    for file in sorted(files, key=lambda file: file.name):
        if file.size > _SMALL:
            alone.append(file)
            continue
        if not packs or file.size > room:
            packs.append([])
            room = _PACK
        packs[-1].append(file)
        room -= file.size
    alone += [files[0] for files in packs if len(files) == 1]
    return alone, [files for files in packs if len(files) > 1]


def pack(files: Sequence[NewFile]) -> tuple[bytes, tuple[Member, ...]]:
    """:raises NotFound: when one is gone."""
    data = bytearray()
    members = []
    for file in files:
        content = _read(file)
        members.append(Member(name=file.name, offset=len(data), size=len(content)))
        data += content
    return bytes(data), tuple(members)


def unpack(file: FileRef, data: bytes) -> Iterator[tuple[str, bytes]]:
    """The needed members of a pack that was read.

    :raises Corrupt: when it is not as long as its manifest says.
    """
    if len(data) != file.size:
        raise Corrupt(f"{file.path} has {len(data):,} bytes, its manifest says {file.size:,}.")
    for member in file.members:
        yield member.name, data[member.offset : member.offset + member.size]


def _read(file: NewFile) -> bytes:
    try:
        return Path(file.source).read_bytes()
    except FileNotFoundError as error:
        raise no_such_source(Path(file.source)) from error
