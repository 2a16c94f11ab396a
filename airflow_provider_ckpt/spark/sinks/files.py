"""Plain files: Parquet, JSON or CSV in a folder.

Every file appears whole, once, and never before its checkpoint is decided. A checkpoint with several files appears file
by file: a reader that looks in between sees some of them. Whoever needs all or nothing reads the files that
`committed_files` names, or takes a table format.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from airflow_provider_ckpt.protocol.codec import JsonObject
from airflow_provider_ckpt.protocol.errors import Refused
from airflow_provider_ckpt.protocol.recovery import SinkMarker
from airflow_provider_ckpt.spark.sinks.base import (
    Leftover,
    Name,
    Publication,
    Published,
    Sink,
    Slot,
    Staged,
    must_commit,
    refuse_older,
)
from airflow_provider_ckpt.spark.sinks.files_log import FilesLog
from airflow_provider_ckpt.spark.sinks.landing import StagedBatch, read_batches
from airflow_provider_ckpt.spark.sinks.landings import open_landing
from airflow_provider_ckpt.spark.sinks.writing import Format
from airflow_provider_ckpt.storage.opening import open_storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class FilesSink(Sink):
    """Writes files into a folder, also one on HDFS, or below a prefix on S3.

    ::

        ckpt.start("orders", orders.writeStream, sink=FilesSink("/data/orders"))

    A restore to an older checkpoint deletes the files that were committed after it, if all of them are where they were
    put; where somebody has taken one away it is refused. Readers keep what they have read.

    :param path: an absolute path that driver and executors share, `s3://bucket/prefix?…`, or
        `hdfs://namenode:8020/path?webhdfs=…`.
    :param format: parquet, json or csv.
    :param partition_by: columns that become folders, as Hive names them.
    :param options: for Spark's writer.
    """

    def __init__(
        self,
        path: str,
        *,
        format: str = "parquet",  # noqa: A002 - as Spark's writers call it
        partition_by: Iterable[str] = (),
        options: Mapping[str, str] | None = None,
    ) -> None:
        self._path = path
        self._format = Format(name=format, partition_by=tuple(partition_by), options=dict(options or {}))
        self._notes = open_storage(path)  # says which extra is missing, if one is
        self._landing = open_landing(path)

    def stage(self, rows: "DataFrame", slot: Slot) -> Staged:
        return self._landing.stage(rows, slot, self._format)

    def commit(self, publication: Publication) -> Published:
        batches = read_batches(publication.name, publication.staged)
        marker = self.marker(publication.name)
        if must_commit(publication, marker):
            self._publish(publication, batches)
        return Published(
            rows=sum(batch.rows for batch in batches),
            bytes=sum(file.size for batch in batches for file in batch.files),
            files=sum(len(batch.files) for batch in batches),
            version=f"checkpoint {max(marker.committed or 0, publication.ref.id)}",
        )

    def recover(self, name: Name, attempt: int) -> SinkMarker:
        refuse_older(name, attempt, self.marker(name).attempt)
        self._log(name).take_over(attempt)
        self._log(name).finish_taking_back()
        return self.marker(name)

    def marker(self, name: Name) -> SinkMarker:
        return self._log(name).marker()

    def history(self, name: Name) -> frozenset[int]:
        return self._log(name).history()

    def roll_back(self, name: Name, attempt: int, to: int) -> None:
        refuse_older(name, attempt, self.marker(name).attempt)
        if to not in self.history(name):
            raise Refused(
                f"{name} can not go back to checkpoint {to}: a file that was committed after it is not in {self._path} "
                f"any more, or it was too long ago. Accept its rows once more with --accept-duplicates {name.sink}."
            )
        self._log(name).take_over(attempt)
        self._log(name).take_back(attempt, to)

    def committed_files(self, name: Name) -> dict[int, tuple[str, ...]]:
        """The files of every checkpoint that is committed whole, named below the path: all or nothing, for readers."""
        return self._log(name).files()

    def discard(self, name: Name, attempt: int, keep: Sequence[JsonObject]) -> None:
        self._landing.discard(name, attempt, keep)

    def leftovers(self, name: Name) -> Iterable[Leftover]:
        return self._landing.leftovers(name)

    def describe(self) -> JsonObject:
        return {"kind": "files", "path": self._path, "format": self._format.name}

    def _publish(self, publication: Publication, batches: Sequence[StagedBatch]) -> None:
        """The files first, then the marker that names them: whoever dies in between is followed by a second try."""
        self._landing.publish(publication.name, batches)
        files = [file for batch in batches for file in batch.files]
        document: JsonObject = {
            "rows": sum(batch.rows for batch in batches),
            "bytes": sum(file.size for file in files),
            "files": [file.name for file in files],
        }
        self._log(publication.name).add(publication.ref.id, document)

    def _log(self, name: Name) -> FilesLog:
        return FilesLog(self._notes, f".ckpt/{name.pipeline}/{name.sink}")
