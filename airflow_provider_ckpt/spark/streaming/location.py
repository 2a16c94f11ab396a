"""A checkpointLocation: which files are needed to start again after batch N, and nothing more than those.

Spark's own files are immutable and versioned, so this can be asked while the query runs on. `offsets/N+1` is left
out on purpose: after a rewind batch N+1 is planned anew. A *tip* takes it along: then batch N+1 is the same again.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

from airflow_provider_ckpt.protocol.codec import Json
from airflow_provider_ckpt.protocol.errors import Corrupt
from airflow_provider_ckpt.protocol.records import ParticipantKind
from airflow_provider_ckpt.spark.streaming import logs, state
from airflow_provider_ckpt.spark.streaming.identity import Identity
from airflow_provider_ckpt.spark.streaming.logs import Offsets, Vanished

StateIds: TypeAlias = Mapping[str, Sequence[Sequence[str]]]  # by operator, partition and store


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One file: as it lies there, or made from another."""

    name: str  # below the location
    source: Path
    data: bytes | None = None
    identity: Identity | None = None  # of one that names others: which file it was that named them


@dataclass(frozen=True, slots=True, kw_only=True)
class Portion:
    """What one participant answers for."""

    name: str  # below the query's name
    kind: ParticipantKind
    pieces: tuple[Piece, ...]
    positions: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class Location:
    """The folder of one query."""

    root: Path

    @property
    def committed(self) -> int | None:
        return logs.newest_batch(self.root / "commits")

    @property
    def planned(self) -> int | None:
        return logs.newest_batch(self.root / "offsets")

    @property
    def tip(self) -> tuple[int | None, int | None]:
        """The newest committed batch, and the one that was planned after it, where there is one."""
        batch, planned = self.committed, self.planned
        is_between = planned is not None and (batch is None or planned > batch)
        return batch, planned if is_between else None

    @property
    def commits(self) -> list[int]:
        return logs.batches(self.root / "commits")

    def offsets(self, batch: int) -> Offsets:
        return logs.read_offsets(self.root / "offsets" / str(batch))

    def needs(self, batch: int | None, *, planned: int | None = None, names: Sequence[str] = ()) -> tuple[Portion, ...]:
        """Everything that a start after `batch` needs; None: nothing is committed, only first positions are kept.

        :param planned: a batch after it that must be the same again.
        :param names: of its sources in the order of the plan, where the program has given them names.
        :raises Vanished: when Spark's maintenance has taken a file away: ask for a newer batch.
        """
        return _Needs(self.root, batch, planned, tuple(names)).portions()

    def seen(self, source: str, upto: int) -> frozenset[str]:
        """The paths that a file source had planned up to an entry of its log."""
        folder = self.root / "sources" / source
        files = [folder / each.name for each in logs.log_files(folder, upto)]
        return frozenset(logs.path_of(file, line) for file in files for line in logs.log_lines(file))


class _Needs:
    def __init__(self, root: Path, batch: int | None, planned: int | None, names: tuple[str, ...]) -> None:
        self._root = root
        self._above = len(f"{root}/")  # characters of a path that are not its name; `relative_to` takes its time
        self._batch = batch
        self._planned = planned
        self._names = names
        self._ids: dict[int, StateIds | None] = {}

    def portions(self) -> tuple[Portion, ...]:
        return (self._log(), *self._sources(), *self._state())

    @cached_property
    def _last(self) -> Offsets | None:
        newest = self._planned if self._planned is not None else self._batch
        return None if newest is None else Location(self._root).offsets(newest)

    def _log(self) -> Portion:
        pieces = [self._piece(self._root / name) for name in self._log_names()]
        if self._batch is not None:
            pieces += [self._piece(file) for file in state.schema_files(self._root, self._batch)]
        return Portion(name="log", kind=ParticipantKind.LOG, pieces=tuple(pieces), positions={"batch": self._batch})

    def _log_names(self) -> Iterator[str]:
        if (self._root / "metadata").exists():
            yield "metadata"
        for batch in self._planned_batches():
            yield f"offsets/{batch}"
        if self._batch is not None:
            yield f"commits/{self._batch}"

    def _planned_batches(self) -> list[int]:
        wanted = {self._planned} if self._planned is not None else set()
        if self._batch is not None:
            wanted |= {self._batch, max(self._batch - 1, 0)}
        return sorted(wanted)

    def _sources(self) -> Iterator[Portion]:
        folders = {name for name in logs.names_in(self._root / "sources") if not name.startswith(".")}
        offsets = self._offsets(folders)
        for name in sorted(folders | offsets.keys()):
            offset = offsets.get(name)
            pieces = tuple(self._source_log(self._root / "sources" / name, offset))
            position = {"offset": offset} if self._last else {}
            yield Portion(name=f"source/{name}", kind=ParticipantKind.SOURCE, pieces=pieces, positions=position)

    def _offsets(self, folders: Collection[str]) -> Mapping[str, Json]:
        """By the name of the source's folder."""
        if self._last is None or self._last.has_names:
            return {} if self._last is None else self._last.sources
        if self._names:
            return {self._names[int(position)]: offset for position, offset in self._last.sources.items()}
        if named := sorted(name for name in folders if not name.isdecimal()):
            raise Corrupt(
                f"{self._root} has a source with the name {named[0]}, and keeps offsets by position: nobody here knows "
                "which one is meant. Start the query by ckpt.start(…), which knows the order of its sources."
            )
        return self._last.sources

    def _source_log(self, folder: Path, offset: Json) -> Iterator[Piece]:
        """A file source's log ends at the offset; other sources keep where they began."""
        if (upto := log_offset(offset)) is not None:
            yield from self._cut_log(folder, upto)
        elif not _is_file_log(folder):
            for file in sorted(folder.rglob("*")):
                if file.is_file() and not file.name.startswith("."):
                    yield self._piece(file)

    def _cut_log(self, folder: Path, upto: int) -> Iterator[Piece]:
        try:
            for file in logs.log_files(folder, upto):
                yield self._piece(folder / file.name)
        except Vanished:
            newer = min(
                (each for each in logs.entries(folder) if each.is_compact and each.batch > upto),
                default=None,
                key=lambda each: each.batch,
            )
            if newer is None:
                raise
            whole = folder / newer.name
            for name, data in logs.split_compact(whole, upto).items():
                yield Piece(name=str((folder / name).relative_to(self._root)), source=whole, data=data)

    def _state(self) -> Iterator[Portion]:
        if self._batch is None:
            return
        for partition in state.partitions(self._root):
            files = [
                file
                for store in partition.stores
                for file in state.chain(store, self._batch + 1, self._ids_of(partition))
            ]
            yield Portion(
                name=f"state/{partition.operator}/{partition.number}",
                kind=ParticipantKind.STATE,
                pieces=tuple(self._piece(file.path, file.identity) for file in files),
                positions={"version": self._batch + 1},
            )

    def _ids_of(self, partition: state.Partition) -> state.IdsOf:
        def ids(version: int) -> Collection[str] | None:
            by_operator = self._state_ids(version - 1)
            if by_operator is None:
                return None
            by_partition = by_operator.get(str(partition.operator))
            if by_partition is None:
                return ()
            if partition.number >= len(by_partition):
                raise Corrupt(f"{self._commit(version - 1)} lacks the state ids of {partition.folder}.")
            return by_partition[partition.number]

        return ids

    @cached_property
    def _has_ids(self) -> bool:
        return bool(logs.read_state_ids(self._commit(self._batch)))

    def _state_ids(self, batch: int) -> StateIds | None:
        """None when the commit is gone: Spark purges old ones, and a location that was laid out anew has only one."""
        if not self._has_ids:
            return {}
        if batch not in self._ids:
            self._ids[batch] = _read_state_ids(self._commit(batch))
        return self._ids[batch]

    def _commit(self, batch: int | None) -> Path:
        return self._root / "commits" / str(batch)

    def _piece(self, file: Path, identity: Identity | None = None) -> Piece:
        return Piece(name=str(file)[self._above :], source=file, identity=identity)


def _read_state_ids(file: Path) -> StateIds | None:
    try:
        return logs.read_state_ids(file)
    except Vanished:
        return None


def source_names(described: Mapping[str, Json]) -> tuple[str, ...]:
    """The names of a query's sources, in order; nothing where the program has given none.

    A source that the plan reads at two places is one source, and has one name.
    """
    names = described.get("source_names")
    return tuple(dict.fromkeys(map(str, names))) if isinstance(names, list) else ()


def log_offset(offset: Json) -> int | None:
    """How far in its own log a file source's offset points; None for sources of other kinds."""
    match offset:
        case {"logOffset": int(upto)}:
            return upto
    return None


def _is_file_log(folder: Path) -> bool:
    return any(_names_files(folder / each.name) for each in logs.entries(folder))


def _names_files(file: Path) -> bool:
    try:
        return any(map(logs.is_file_entry, logs.read_text(file).split("\n")[1:2]))
    except (Vanished, Corrupt):
        return False
