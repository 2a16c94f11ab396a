"""Holding what a cut needs: second names for its files, given at once, so that Spark's maintenance can come and go.

A file that an earlier checkpoint has stored is not held again. Files of a location never change, so a file is known
again by its inode, size and time: a batch that is run again writes a new file under the old name.
"""

import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from airflow_provider_ckpt.protocol.codec import JsonObject
from airflow_provider_ckpt.protocol.manifest import Manifest
from airflow_provider_ckpt.protocol.records import FileRef, Kind
from airflow_provider_ckpt.spark.streaming.hadoop_crc import checksums_of
from airflow_provider_ckpt.spark.streaming.identity import Identity, identify
from airflow_provider_ckpt.spark.streaming.location import Piece
from airflow_provider_ckpt.spark.streaming.logs import Vanished
from airflow_provider_ckpt.storage.local_files import link_or_copy

_LITTLE = 4  # a pack is given up when less than this part of it is needed


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A file that is safe from now on: in the storage already, or under a second name."""

    name: str
    stored: FileRef | None  # it, or the pack in which it lies
    source: Path
    size: int


@dataclass(slots=True)
class Known:
    """What lies in the storage already: the newest checkpoint that can be built on, and its files."""

    base: int | None = None
    files: Mapping[str, tuple[Identity, FileRef]] = field(default_factory=dict)

    def find(self, name: str, identity: Identity) -> FileRef | None:
        found = self.files.get(name)
        return found[1] if found is not None and found[0] == identity else None

    def learn(self, manifest: Manifest, identities: Mapping[str, Identity]) -> None:
        """A completed checkpoint can be built on, unless it is a savepoint: that one owns its copies alone."""
        if manifest.kind is Kind.SAVEPOINT:
            return
        self.base = manifest.ref.id
        stored = {name: file for each in manifest.laid_out for name, file in _by_name(each)}
        self.files = {name: (identities[name], stored[name]) for name in identities.keys() & stored.keys()}

    def forget(self) -> None:
        self.base, self.files = None, {}

    def to_json(self) -> JsonObject:
        """What the attempt after this one needs to know the files again: a second name is the same file."""
        return {"base": self.base, "identities": {name: list(known[0]) for name, known in self.files.items()}}


class Holder:
    """Holds the files of one checkpoint in a folder on the same file system as the locations."""

    def __init__(self, folder: Path, known: Known) -> None:
        self._folder = folder
        self._known = known
        self._made: set[Path] = set()  # folders
        self._named: dict[str, Identity] = {}  # files that have a second name
        self.identities: dict[str, Identity] = {}

    def hold(self, prefix: str, pieces: Iterable[Piece]) -> tuple[Held, ...]:
        """:raises Vanished: when one is gone already."""
        return tuple(self._hold(f"{prefix}/{piece.name}", piece) for piece in pieces)

    def release(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def _hold(self, name: str, piece: Piece) -> Held:
        if piece.data is not None:
            self._make(self._folder / name, piece.data)
            return Held(name=name, stored=None, source=self._folder / name, size=len(piece.data))
        try:
            identity = identify(piece.source)
            stored = self._known.find(name, identity)
            source = piece.source if stored is not None else self._second_name(name, piece.source, identity)
        except FileNotFoundError as error:
            raise Vanished(f"{piece.source} is gone") from error
        if piece.identity not in (None, identity):
            raise Vanished(f"{piece.source} was replaced, and names other files")
        self.identities[name] = identity
        return Held(name=name, stored=stored, source=source, size=identity[1])

    def _second_name(self, name: str, source: Path, identity: Identity) -> Path:
        """:raises Vanished: when another file came under this name meanwhile."""
        target = self._folder / name
        if self._named.get(name) != identity:
            self._link(source, target)
            self._link_checksums(source, target)
            self._named[name] = identity
            if identity not in (identify(target), identify(source)):  # a copy is another file than its source
                raise Vanished(f"{source} was replaced")
        return target

    def _link(self, source: Path, target: Path) -> None:
        self._clear(target)
        link_or_copy(source, target)

    def _link_checksums(self, source: Path, target: Path) -> None:
        """Spark's own, for the task that stores the file: it does not store what is damaged already."""
        beside = checksums_of(target)
        beside.unlink(missing_ok=True)
        with suppress(FileNotFoundError):  # not every file system of Hadoop's keeps them
            link_or_copy(checksums_of(source), beside)

    def _make(self, target: Path, data: bytes) -> None:
        self._clear(target)
        target.write_bytes(data)

    def _clear(self, target: Path) -> None:
        """A free name in a folder that is there."""
        if target.parent not in self._made:
            target.parent.mkdir(parents=True, exist_ok=True)
            self._made.add(target.parent)
        target.unlink(missing_ok=True)  # of a capture that began before


def _by_name(file: FileRef) -> Iterator[tuple[str, FileRef]]:
    """A pack of which little is needed any more is not built on: what is needed goes into a new one."""
    if not file.members:
        yield file.name, file
    elif sum(member.size for member in file.members) * _LITTLE >= file.size:
        yield from ((member.name, file) for member in file.members)
