"""Spark's logs inside a checkpointLocation: offsets, commits, and what a file source or file sink has seen.

Every log file begins with a line `v1`, `v2`, …; a version that is not known here is refused by name, because a wrong
guess would restore to a wrong place.
"""

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from airflow_provider_ckpt.protocol.codec import Fields, Json
from airflow_provider_ckpt.protocol.errors import CkptError, Corrupt, UnknownVersion
from airflow_provider_ckpt.protocol.paths import check_path

_BATCH = re.compile(r"\d{1,18}")
_ENTRY = re.compile(r"(\d{1,18})(\.compact)?")
_COMPACTED_EVERY = 10  # batches, unless Spark was told otherwise
_VERSION = re.compile(r"v\d+")


class Vanished(CkptError):
    """A file that a batch needs is gone: Spark's maintenance was faster. A newer batch may still be whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offsets:
    """One planned batch: where each source stands after it, and the settings that Spark has pinned for the query."""

    conf: Mapping[str, str]
    sources: Mapping[str, Json]  # by the source's name, or by its position
    has_names: bool  # by name: since version 2 of the log


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFile:
    """One file of a log that is compacted every few batches."""

    batch: int
    is_compact: bool

    @property
    def name(self) -> str:
        return f"{self.batch}.compact" if self.is_compact else str(self.batch)


def batches(folder: Path) -> list[int]:
    """The batches that a log has a file for, in order."""
    return sorted(int(name) for name in names_in(folder) if _BATCH.fullmatch(name))


def newest_batch(folder: Path) -> int | None:
    return max((int(name) for name in names_in(folder) if _BATCH.fullmatch(name)), default=None)


def names_in(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - a path for each name would take longer than the listing
    except (FileNotFoundError, NotADirectoryError):
        return []


def read_offsets(file: Path) -> Offsets:
    version, lines = read_versioned(file, known=("v1", "v2"))
    fields = Fields(str(file), _json(file, lines[0] if lines else ""))
    sources = _named(file, lines[1:]) if version == "v2" else dict(enumerate(lines[1:]))
    return Offsets(
        conf={name: str(value) for name, value in fields.object("conf").items()},
        sources={str(name): None if line == "-" else _json(file, line) for name, line in sources.items()},
        has_names=version == "v2",
    )


def read_state_ids(file: Path) -> Mapping[str, Sequence[Sequence[str]]]:
    """The unique ids of the state that a committed batch left, by operator, partition and store; {} before format 2."""
    _, lines = read_versioned(file, known=("v1", "v2", "v3"))
    document = _json(file, lines[0]) if lines else {}
    if not isinstance(document, dict):
        raise Corrupt(f"{file} is no commit of a batch.")
    ids = document.get("stateUniqueIds") or {}
    if not isinstance(ids, dict) or not all(map(_are_ids, ids.values())):
        raise Corrupt(f"{file} has state ids that can not be read.")
    return ids


def log_files(folder: Path, upto: int) -> list[LogFile]:
    """The files that hold everything up to a batch: the newest compacted one, and those after it.

    :raises Vanished: when one of them is gone.
    """
    there = {file.batch: file for file in sorted(entries(folder), key=lambda each: each.is_compact)}
    base = max((batch for batch, file in there.items() if file.is_compact and batch <= upto), default=-1)
    wanted = range(max(base, 0), upto + 1)
    missing = [batch for batch in wanted if batch not in there]
    if missing:
        raise Vanished(f"{folder}/{missing[0]} is gone")
    return [there[batch] for batch in wanted]


def entries(folder: Path) -> list[LogFile]:
    found = (_ENTRY.fullmatch(name) for name in names_in(folder))
    return [LogFile(batch=int(match[1]), is_compact=match[2] is not None) for match in found if match]


def split_compact(file: Path, upto: int) -> dict[str, bytes]:
    """A log up to a batch, made from a newer compacted file whose entries say which batch they belong to.

    It is one compacted file that ends with that batch. Spark derives its interval from the only compacted file that
    it finds, whatever the interval is set to: so this name fits always, and single files might not.
    """
    kept = [line for line in log_lines(file) if _batch_of(file, line) <= upto]
    return {LogFile(batch=upto, is_compact=True).name: write_log(kept)}


def settle(folder: Path) -> None:
    """Tell Spark how often a log that was laid out is compacted.

    Spark takes the distance of the two newest compacted files for it. From one alone it guesses, and may guess another
    interval than the log was written with: beside 39.compact it takes 10, and misses 49.compact where there is 49. So
    one without an entry, which nobody reads, is put before the compacted file.
    """
    there = entries(folder)
    match [each.batch for each in there if each.is_compact]:
        case [compacted]:
            interval = _interval(compacted + 1, longer_than=max(each.batch for each in there) - compacted)
            if interval is not None:
                before = LogFile(batch=compacted - interval, is_compact=True)
                (folder / before.name).write_bytes(write_log(()))


def log_lines(file: Path) -> list[str]:
    """The entries of a source's or sink's log, one JSON document per line."""
    return read_versioned(file, known=("v1",))[1]


def write_log(lines: Iterable[str]) -> bytes:
    return "\n".join(["v1", *lines]).encode()


def path_of(file: Path, line: str) -> str:
    return Fields(str(file), _json(file, line)).text("path")


def is_file_entry(line: str) -> bool:
    """Whether a line is what a file source logs of a file."""
    try:
        entry = json.loads(line)
    except ValueError:
        return False
    match entry:
        case {"path": str(), "batchId": int()}:
            return True
    return False


def below(folder: Path, uri: str) -> str:
    """The path below a folder of what a log names by its URI.

    :raises Corrupt: when it lies elsewhere.
    """
    prefix = f"{folder.as_uri()}/"
    if not uri.startswith(prefix):
        raise Corrupt(f"The log of {folder} names {uri:.200}, which lies elsewhere.")
    return check_path(unquote(uri.removeprefix(prefix)))


def read_versioned(file: Path, known: Sequence[str]) -> tuple[str, list[str]]:
    version, *lines = read_text(file).split("\n")
    if not _VERSION.fullmatch(version):
        raise Corrupt(f"{file} is not what Spark writes: it begins with {version!r:.20}, not with a version.")
    if version not in known:
        raise UnknownVersion(
            f"{file} is written in version {version!r:.20}; known are {', '.join(known)}. "
            "This Spark is newer than airflow-provider-ckpt: update it."
        )
    return version, lines


def read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise Vanished(f"{file} is gone") from error
    except UnicodeDecodeError as error:
        raise Corrupt(f"{file} is not text.") from error


def _interval(entries_compacted: int, *, longer_than: int) -> int | None:
    """One that fits the compacted entries and those since; near Spark's default, so that it is neither rare nor often.

    None where only all of them fit: then nothing was compacted before, and Spark takes the interval it took then.
    """
    fitting = [
        interval
        for interval in range(max(longer_than + 1, 2), entries_compacted // 2 + 1)
        if entries_compacted % interval == 0
    ]
    return next((each for each in fitting if each >= _COMPACTED_EVERY), fitting[-1] if fitting else None)


def _batch_of(file: Path, line: str) -> int:
    return Fields(str(file), _json(file, line)).whole("batchId")


def _are_ids(partitions: Json) -> bool:
    """By partition, then by store."""
    return isinstance(partitions, list) and all(
        isinstance(stores, list) and all(isinstance(id_, str) for id_ in stores) for stores in partitions
    )


def _named(file: Path, lines: Sequence[str]) -> dict[object, str]:
    pairs = [line.partition(":") for line in lines if line]
    if any(not separator for _, separator, _ in pairs):
        raise Corrupt(f"{file} has a source without its name.")
    return {name: offset for name, _, offset in pairs}


def _json(file: Path, text: str) -> Json:
    try:
        document: Json = json.loads(text)
    except ValueError as error:
        raise Corrupt(f"{file} is not what Spark writes: {error}.") from error
    return document
