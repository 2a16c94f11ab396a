"""The state of a query as files: which of them version V of a state store is made of.

State after batch N is version N+1.

==================  ===========================================================================================
HDFS-backed         `V.snapshot`, or `V.delta` and what came before it
RocksDB             `V.zip` and the `SSTs/*` that it names
RocksDB, changelog  `V.changelog` and what came before it, down to a `.zip`
format 2            the same with `V_<id>.…`; the ids of version V are in `commits/(V-1)`
==================  ===========================================================================================
"""

import io
import json
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from airflow_provider_ckpt.protocol.errors import Corrupt, UnknownVersion
from airflow_provider_ckpt.spark.streaming import logs
from airflow_provider_ckpt.spark.streaming.identity import Identity, identify
from airflow_provider_ckpt.spark.streaming.logs import Vanished, names_in

_VERSIONED = re.compile(r"(\d{1,18})(?:_([0-9A-Za-z-]+))?\.(snapshot|delta|zip|changelog)")
_ROCKSDB_FOLDERS = frozenset({"SSTs", "logs"})
_DESCRIPTIONS = ("_metadata", "_stateSchema", "0/_metadata", "0/*/_metadata")  # only partition 0 has them
_DEFAULT_STORE = "default"
_FULL = ("zip", "snapshot")
_CHANGES = ("changelog", "delta")
_LIMIT = "globalLimit"  # the operator behind `limit`
_NO_FIELDS = b'{"type":"struct","fields":[]}'

# The unique ids that the state of a version may have: none before format 2, None when nobody knows them any more.
IdsOf = Callable[[int], Collection[str] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFile:
    path: Path
    identity: Identity | None = None  # of one that names others: which file it was that named them


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """One partition of one stateful operator, with one or several stores."""

    operator: int
    number: int
    folder: Path
    named: tuple[str, ...] = ()  # the stores, as the operator says; nothing when it does not

    @property
    def stores(self) -> list[Path]:
        """A join has four named ones in folders of their own; others have one, in the partition's folder."""
        if self.named:
            return [self.folder if name == _DEFAULT_STORE else self.folder / name for name in self.named]
        inner = [name for name in names_in(self.folder) if not _is_own(name) and (self.folder / name).is_dir()]
        return [self.folder / name for name in sorted(inner)] or [self.folder]


def partitions(location: Path) -> list[Partition]:
    """All of them, also those of which nothing is left."""
    found: list[Partition] = []
    for operator in _numbers(location / "state"):
        folder = location / "state" / str(operator)
        named, count = _described(folder)
        found += [
            Partition(operator=operator, number=number, folder=folder / str(number), named=named)
            for number in range(count)
        ]
    return found


def schema_files(location: Path, batch: int) -> Iterator[Path]:
    """What operators and stores say about themselves; nothing of batches that come later."""
    for operator in _numbers(location / "state"):
        folder = location / "state" / str(operator)
        for pattern in _DESCRIPTIONS:
            for top in sorted(folder.glob(pattern)):
                yield from (file for file in sorted(top.rglob("*")) if _describes(file, batch))


def chain(store: Path, version: int, ids_of: IdsOf) -> list[StateFile]:
    """The files that a version is loaded from, newest first.

    Where the committed id of an older version is not known any more, every id is taken: Spark finds its own by the
    lineage that it keeps inside of newer files.

    :raises Vanished: when one of them is gone.
    """
    there = _index(store)
    files: list[StateFile] = []
    for each in range(version, 0, -1):
        found = _pick(there.get(each, ()), ids_of(each))
        if not found:
            raise Vanished(f"{store}/{each} is gone")
        chosen = [next(names[kind] for kind in (*_FULL, *_CHANGES) if kind in names) for names in found]
        files += [file for name in chosen for file in _with_shared(store, name)]
        if all(name.endswith(_FULL) for name in chosen):
            break
    return files


def _index(store: Path) -> dict[int, list[tuple[str | None, str, str]]]:
    """(id, kind, name) of every file, by version."""
    there: dict[int, list[tuple[str | None, str, str]]] = {}
    for name in names_in(store):
        if match := _VERSIONED.fullmatch(name):
            there.setdefault(int(match[1]), []).append((match[2], match[3], name))
    return there


def _pick(found: Iterable[tuple[str | None, str, str]], ids: Collection[str] | None) -> list[Mapping[str, str]]:
    """The names by kind, of the one id that was committed; other ids are of tasks that were tried and dropped."""
    by_id: dict[str | None, dict[str, str]] = {}
    for id_, kind, name in sorted(found, key=lambda each: each[2]):
        by_id.setdefault(id_, {})[kind] = name
    if ids is None:
        return list(by_id.values())
    return [by_id[id_] for id_ in ids or (None,) if id_ in by_id]


def _with_shared(store: Path, name: str) -> list[StateFile]:
    """A file, and what it shares with others: a task that Spark runs again may replace a snapshot of RocksDB."""
    if not name.endswith(".zip"):
        return [StateFile(path=store / name)]
    try:
        identity = identify(store / name)
        shared = _named_in_zip(store / name, identity)
    except FileNotFoundError as error:
        raise Vanished(f"{store / name} is gone") from error
    return [StateFile(path=store / name, identity=identity), *(StateFile(path=store / each) for each in shared)]


@lru_cache(maxsize=20_000)
def _named_in_zip(file: Path, identity: Identity) -> tuple[str, ...]:
    """What a snapshot of RocksDB shares with others; the file never changes, so it is read once."""
    try:
        with file.open("rb") as stream, zipfile.ZipFile(stream) as archive:
            if identify(stream.fileno()) != identity:
                raise Vanished(f"{file} was replaced")
            version, _, document = archive.read("metadata").decode().partition("\n")
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, ValueError) as error:
        raise Corrupt(f"{file} is no snapshot of RocksDB: {error}.") from error
    if version != "v1":
        raise UnknownVersion(
            f"{file} has a metadata version {version!r:.20}; known is v1. Update airflow-provider-ckpt."
        )
    try:
        listed = json.loads(document)
        tables = [f"SSTs/{each['dfsSstFileName']}" for each in listed.get("sstFiles") or ()]
        logs = [f"logs/{each['dfsLogFileName']}" for each in listed.get("logFiles") or ()]
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise Corrupt(f"{file} does not say which files it shares: {error}.") from error
    return (*tables, *logs)


def _described(operator: Path) -> tuple[tuple[str, ...], int]:
    """The stores and the number of partitions that the operator has: one that is gone must be missed.

    An operator without a key (`groupBy().agg(…)`, `limit`) has one partition, and says that it has as many as others.
    """
    by_batch = operator / "_metadata" / "v2"
    described = [operator / "_metadata" / "metadata", *(by_batch / str(batch) for batch in _numbers(by_batch))]
    newest = next((file for file in reversed(described) if file.is_file()), None)
    if newest is None:
        return (), max(_numbers(operator), default=-1) + 1
    _, lines = logs.read_versioned(newest, known=("v1", "v2"))
    try:
        document = json.loads(lines[0])
        kind = str(document["operatorInfo"]["operatorName"])
        stores = {str(store["storeName"]): int(store["numPartitions"]) for store in document["stateStoreInfo"]}
    except (LookupError, TypeError, ValueError) as error:
        raise Corrupt(f"{newest} does not say which stores and partitions the operator has.") from error
    is_single = kind == _LIMIT or _has_no_key(operator / "0" / "_metadata" / "schema")
    return tuple(stores), 1 if is_single else max(stores.values(), default=0)


def _has_no_key(schema: Path) -> bool:
    """Whether the schema of a state store says so: a version, then the schema of its keys, in pieces.

    Only version 2 is looked into, in which Spark writes the schema of an aggregation.
    """
    try:
        data = io.BytesIO(schema.read_bytes())
    except FileNotFoundError:
        return False
    if _read_utf(data) != b"v2":
        return False
    (pieces,) = struct.unpack(">i", data.read(4).rjust(4, b"\0"))
    return b"".join(_read_utf(data) for _ in range(pieces)) == _NO_FIELDS


def _read_utf(data: io.BytesIO) -> bytes:
    """As Java's writeUTF has written it."""
    return data.read(int.from_bytes(data.read(2), "big"))


def _describes(file: Path, batch: int) -> bool:
    number = file.name.partition("_")[0]
    is_of_later = number.isdecimal() and int(number) > batch
    is_own = not file.name.startswith(".") and not file.name.endswith(".crc")
    return is_own and not is_of_later and file.is_file()


def _is_own(name: str) -> bool:
    return name.startswith((".", "_")) or name in _ROCKSDB_FOLDERS or _VERSIONED.fullmatch(name) is not None


def _numbers(folder: Path) -> list[int]:
    return sorted(int(name) for name in names_in(folder) if name.isdecimal())
