"""Where files of a sink lie on S3: staged as uploads in parts that nobody has completed, published by completing them.

Spark writes into a folder that driver and executors share, and tasks send the files on: Spark needs no S3 of its own.
A note beside the target, `.ckpt/<pipeline>/<query>/sink/staged/<attempt>/<batch>-<run>`, names the objects that a batch
is about to become, and is written before the first upload begins: so no upload is without an owner. A task that Spark
ran twice has sent a file twice: what nobody has counted is aborted before the note goes.
"""

import logging
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from airflow_provider_ckpt.protocol.codec import Json, JsonObject, canonical, parse
from airflow_provider_ckpt.protocol.errors import Misused
from airflow_provider_ckpt.spark.sinks.base import Leftover, Name, Slot, Staged
from airflow_provider_ckpt.spark.sinks.landing import StagedBatch, StagedFile, read_batch
from airflow_provider_ckpt.spark.sinks.writing import Format, Written, write
from airflow_provider_ckpt.storage.opening import open_storage
from airflow_provider_ckpt.storage.s3 import S3Storage
from airflow_provider_ckpt.storage.s3_multipart import Upload

if TYPE_CHECKING:
    from pyarrow.fs import S3FileSystem
    from pyspark.sql import DataFrame

_log = logging.getLogger("airflow_provider_ckpt.spark")
_TASKS = 8  # that send files, at most
_FEWEST_DAYS = 7  # that a staged file should be able to wait


class S3Landing:
    def __init__(self, url: str) -> None:
        self._url = url
        self._storage = _open(url)

    @property
    def root(self) -> str:
        return self._storage.url

    def uri(self, name: str) -> str:
        return f"{self._storage.url}/{name}"

    def source(self, name: str) -> object:
        return _file_system(self._url).open_input_file(f"{self._storage.url.removeprefix('s3://')}/{name}")

    def stage(self, rows: "DataFrame", slot: Slot, form: Format) -> Staged:
        self._discard([note for note in self._notes(slot.name) if _is_of(note, slot.attempt, slot.batch)])
        count, files = write(rows, slot.scratch, form)
        folder = f"{slot.attempt}/{slot.batch}-{slot.run}"
        names: list[Json] = [file.name for file in files]
        if names:
            self._storage.create(f"{_home(slot.name)}/{folder}", canonical({"files": names}))
        sent = _send_as_tasks(rows, self._url, slot.scratch, files)
        return StagedBatch(folder=folder, rows=count, files=tuple(sent)).to_staged()

    def publish(self, name: Name, batches: Sequence[StagedBatch]) -> None:
        files = [file for batch in batches for file in batch.files]
        for file in files:
            self._storage.finish_upload(file.name, Upload(id=file.upload, parts=file.parts), file.size)
        self._abort({file.name for file in files})
        for batch in batches:
            self._storage.delete(f"{_home(name)}/{batch.folder}")

    def discard(self, name: Name, attempt: int, keep: Sequence[JsonObject]) -> None:
        _check_rules(self._url)  # a new attempt begins
        kept = {f"{_home(name)}/{read_batch(name, dict(document)).folder}" for document in keep}
        self._discard([note for note in self._notes(name) if _attempt(note) < attempt and note not in kept])

    def leftovers(self, name: Name) -> Iterator[Leftover]:
        for note in self._notes(name):
            yield Leftover(attempt=_attempt(note), what=f"{self._storage.url}/{note}", bytes=0)

    def _notes(self, name: Name) -> list[str]:
        return [file.path for file in self._storage.list(f"{_home(name)}/")]

    def _discard(self, notes: Sequence[str]) -> None:
        """The uploads first, then the notes that name them."""
        if not notes:
            return
        self._abort({file for note in notes for file in parse(note, self._storage.read(note)).texts("files")})
        for note in notes:
            self._storage.delete(note)

    def _abort(self, names: Collection[str]) -> None:
        """Every upload of these files that is not finished."""
        for partial in self._storage.partials("") if names else ():
            if partial.path in names:
                self._storage.discard(partial)


def _send_as_tasks(rows: "DataFrame", url: str, folder: Path, files: Sequence[Written]) -> list[StagedFile]:
    if not files:
        return []
    tasks = min(len(files), _TASKS)
    sent = rows.sparkSession.sparkContext.parallelize([(file.name, file.size) for file in files], tasks)
    return list(sent.map(lambda file: _send(url, folder, *file)).collect())


def _send(url: str, folder: Path, name: str, size: int) -> StagedFile:
    """In a Spark task."""
    upload = _open(url).begin_upload(name, folder / name)
    return StagedFile(name=name, size=size, upload=upload.id, parts=upload.parts)


@lru_cache(maxsize=4)
def _open(url: str) -> S3Storage:
    storage = open_storage(url)
    if not isinstance(storage, S3Storage):
        raise Misused("Files can land on S3 at a URL that begins with s3:// only.")
    return storage


@lru_cache(maxsize=4)
def _file_system(url: str) -> "S3FileSystem":
    from pyarrow.fs import S3FileSystem  # noqa: PLC0415 - only tables read their footers

    settings = dict(parse_qsl(urlsplit(url).query))
    return S3FileSystem(endpoint_override=settings.get("endpoint"), region=settings.get("region"))


@lru_cache(maxsize=4)
def _check_rules(url: str) -> None:
    """Once in a driver: warn of a bucket that aborts what is staged while its checkpoint may still commit it."""
    storage = _open(url)
    days = storage.upload_days
    if days is not None and days < _FEWEST_DAYS:
        _log.warning(
            "The bucket of %s aborts uploads in parts %d days after they began, by a lifecycle rule. What a sink has "
            "staged is such an upload until its checkpoint commits it: after an outage of %d days rows would be gone. "
            "Set DaysAfterInitiation of that rule (AbortIncompleteMultipartUpload) to %d or more, or let it leave this "
            "prefix out.",
            storage.url,
            days,
            days,
            _FEWEST_DAYS,
        )


def _home(name: Name) -> str:
    return f".ckpt/{name.pipeline}/{name.sink}/staged"


def _attempt(note: str) -> int:
    return int(note.split("/")[-2])


def _is_of(note: str, attempt: int, batch: int) -> bool:
    return _attempt(note) == attempt and note.rpartition("/")[2].startswith(f"{batch}-")
