"""Where files of a sink lie: staged ones hidden beside the target, published ones in it.

::

    <root>/.ckpt/<pipeline>/<query>/sink/staged/<attempt>/<batch>-<run>/<file>.staged     no reader takes it for data
    <root>/<file>                                                                         committed by a rename

Readers of folders (Spark, pyarrow, Hive, Delta's VACUUM) pass over names that begin with a dot. Those that take
patterns (DuckDB, pandas) do not: for them a staged file has a name that no pattern for data fits, and Spark writes it
elsewhere first, in the attempt's folder. A file is committed by a rename, so it is seen whole or not at all; a rename
that was done already is recognised by the file's size.
"""

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from airflow_provider_ckpt.protocol.codec import Fields, Json, JsonObject
from airflow_provider_ckpt.protocol.errors import Corrupt
from airflow_provider_ckpt.protocol.paths import check_path
from airflow_provider_ckpt.spark.folders import check_plain
from airflow_provider_ckpt.spark.sinks.base import Leftover, Name, Slot, Staged
from airflow_provider_ckpt.spark.sinks.writing import Format, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_STAGED = ".staged"  # at the end of a name
_TASKS = 8  # that copy files, at most


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFile:
    """A file of a batch; it is published under the same name, below the root."""

    name: str
    size: int
    upload: str = ""  # on S3: the upload that is to be completed, and its parts
    parts: tuple[str, ...] = ()

    def to_json(self) -> Json:
        return [self.name, self.size, self.upload, list(self.parts)] if self.upload else [self.name, self.size]


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedBatch:
    folder: str  # "<attempt>/<batch>-<run>"
    rows: int
    files: tuple[StagedFile, ...]

    def to_staged(self) -> Staged:
        files = [file.to_json() for file in self.files]
        return Staged(
            rows=self.rows,
            bytes=sum(file.size for file in self.files),
            files=len(files),
            document={"folder": self.folder, "rows": self.rows, "files": files},
        )


def read_batch(name: Name, document: Json) -> StagedBatch:
    """What one batch has staged; nothing that it names lies outside of its folder."""
    fields = Fields(f"what {name} has staged", document)
    files = tuple(_file(each) for each in fields.sequence("files"))
    return StagedBatch(folder=check_path(fields.text("folder")), rows=fields.whole("rows"), files=files)


def read_batches(name: Name, staged: JsonObject) -> list[StagedBatch]:
    """What a publication is made of."""
    return [read_batch(name, each) for each in Fields(f"what {name} publishes", dict(staged)).sequence("batches")]


def _file(document: Json) -> StagedFile:
    match document:
        case [str(name), int(size)]:
            return StagedFile(name=check_path(name), size=size)
        case [str(name), int(size), str(upload), list(parts)]:
            return StagedFile(name=check_path(name), size=size, upload=upload, parts=tuple(map(str, parts)))
    raise Corrupt(f"{document!r:.60} does not name a staged file.")


class Landing(Protocol):
    """A place for files that are staged first and published later."""

    def stage(self, rows: "DataFrame", slot: Slot, form: Format) -> Staged: ...

    def publish(self, name: Name, batches: Sequence[StagedBatch]) -> None:
        """Make the staged files visible, each at once; what is published already stays as it is."""

    def discard(self, name: Name, attempt: int, keep: Sequence[JsonObject]) -> None: ...

    def leftovers(self, name: Name) -> Iterable[Leftover]: ...


class TableLanding(Landing, Protocol):
    """One where tables can be as well: their libraries find the files."""

    @property
    def root(self) -> str: ...

    def uri(self, name: str) -> str:
        """How other programs name a published file."""

    def source(self, name: str) -> object:
        """A published file as pyarrow reads it."""


class LocalLanding:
    """On a POSIX file system that driver and executors share."""

    def __init__(self, root: Path) -> None:
        check_plain(root)
        self._root = root

    @property
    def root(self) -> str:
        return str(self._root)

    def uri(self, name: str) -> str:
        return f"{self._root.as_uri()}/{name}"

    def source(self, name: str) -> object:
        return f"{self._root}/{name}"

    def stage(self, rows: "DataFrame", slot: Slot, form: Format) -> Staged:
        attempt = self._staged(slot.name) / str(slot.attempt)
        for older in attempt.glob(f"{slot.batch}-*"):  # this batch runs again
            shutil.rmtree(older, ignore_errors=True)
        folder = f"{slot.attempt}/{slot.batch}-{slot.run}"
        count, files = write(rows, slot.scratch, form)
        staged = self._staged(slot.name) / folder
        _move_all(rows, [(slot.scratch / file.name, _staged_as(staged, file.name)) for file in files])
        names = tuple(StagedFile(name=file.name, size=file.size) for file in files)
        return StagedBatch(folder=folder, rows=count, files=names).to_staged()

    def publish(self, name: Name, batches: Sequence[StagedBatch]) -> None:
        staged = self._staged(name)
        moves = [(staged / batch.folder, file) for batch in batches for file in batch.files]
        for parent in {(self._root / file.name).parent for _, file in moves}:
            parent.mkdir(parents=True, exist_ok=True)
        for folder, file in moves:
            self._move(name, folder, file)
        for batch in batches:
            shutil.rmtree(staged / batch.folder, ignore_errors=True)  # all of it is published: nothing is lost

    def discard(self, name: Name, attempt: int, keep: Sequence[JsonObject]) -> None:
        kept = {read_batch(name, dict(document)).folder for document in keep}
        for folder in self._folders(name):
            number = int(folder.parent.name)
            if number < attempt and f"{number}/{folder.name}" not in kept:
                shutil.rmtree(folder, ignore_errors=True)

    def leftovers(self, name: Name) -> Iterator[Leftover]:
        for folder in self._folders(name):
            files = [file for file in folder.rglob("*") if file.is_file()]
            if files:
                size = sum(file.stat().st_size for file in files)
                yield Leftover(attempt=int(folder.parent.name), what=str(folder), bytes=size)

    def _folders(self, name: Name) -> Iterator[Path]:
        for folder in self._staged(name).glob("[0-9]*/*"):
            if folder.parent.name.isdecimal():
                yield folder

    def _staged(self, name: Name) -> Path:
        return self._root / ".ckpt" / name.pipeline / name.sink / "staged"

    def _move(self, name: Name, folder: Path, file: StagedFile) -> None:
        target = self._root / file.name
        try:
            os.rename(_staged_as(folder, file.name), target)  # noqa: PTH104 - ten thousand of them
        except FileNotFoundError:
            if not target.is_file() or target.stat().st_size != file.size:
                raise staged_is_gone(name, _staged_as(folder, file.name), target) from None


def _staged_as(folder: Path, name: str) -> Path:
    return folder / f"{name}{_STAGED}"


def _move_all(rows: "DataFrame", moves: Sequence[tuple[Path, Path]]) -> None:
    """Renames, which cost nothing; to another file system Spark tasks copy."""
    for folder in {target.parent for _, target in moves}:
        folder.mkdir(parents=True, exist_ok=True)
    if all(source.parent.stat().st_dev == target.parent.stat().st_dev for source, target in moves[:1]):
        for source, target in moves:
            os.rename(source, target)  # noqa: PTH104 - as above
    else:
        tasks = rows.sparkSession.sparkContext.parallelize(moves, min(len(moves), _TASKS))
        tasks.foreach(_move_elsewhere)


def _move_elsewhere(move: tuple[Path, Path]) -> None:
    """In a Spark task; one that runs twice finds that the first has done it."""
    source, target = move
    if source.exists():
        shutil.copyfile(source, target)
        source.unlink(missing_ok=True)


def staged_is_gone(name: Name, staged: object, target: object) -> Corrupt:
    return Corrupt(
        f"{staged}, which {name} has staged, is gone and was not committed as {target}. Bring it back, or give the "
        f"commit up: `ckpt list {name.pipeline}` names the checkpoint that is COMMITTING, and `ckpt show` of it prints "
        "the command."
    )
