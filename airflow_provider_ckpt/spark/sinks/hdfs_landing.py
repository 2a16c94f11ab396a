"""Where files of a sink lie on HDFS: as on a POSIX file system, staged ones hidden beside the target.

Spark's own writer stages them there, by Hadoop's client in its JVM. The commit has no JVM where a restore finishes it:
it renames over WebHDFS, file by file. A rename that was done already is recognised by the file's size.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from airflow_provider_ckpt.protocol.codec import JsonObject
from airflow_provider_ckpt.spark.sinks.base import Leftover, Name, Slot, Staged
from airflow_provider_ckpt.spark.sinks.landing import StagedBatch, StagedFile, read_batch, staged_is_gone
from airflow_provider_ckpt.spark.sinks.writing import Format, is_data, save_counted
from airflow_provider_ckpt.storage.hdfs_client import HdfsClient, connect
from airflow_provider_ckpt.storage.hdfs_place import HdfsPlace, read_place
from airflow_provider_ckpt.storage.refusals import other_content

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def open_hdfs_landing(url: str) -> "HdfsLanding":
    place = read_place(urlsplit(url))
    return HdfsLanding(connect(place), place)


class HdfsLanding:
    def __init__(self, client: HdfsClient, place: HdfsPlace) -> None:
        self._client, self._place = client, place

    def stage(self, rows: "DataFrame", slot: Slot, form: Format) -> Staged:
        home = self._staged(slot.name)
        for older in self._client.entries(f"{home}/{slot.attempt}"):
            if older.name.startswith(f"{slot.batch}-"):  # this batch runs again
                self._client.delete(f"{home}/{slot.attempt}/{older.name}", is_recursive=True)
        folder = f"{slot.attempt}/{slot.batch}-{slot.run}"
        count = save_counted(rows, f"hdfs://{self._place.authority}{home}/{folder}", form)
        files = tuple(each for each in self._files(f"{home}/{folder}") if count)
        if not files:
            self._client.delete(f"{home}/{folder}", is_recursive=True)
        return StagedBatch(folder=folder, rows=count, files=files).to_staged()

    def publish(self, name: Name, batches: Sequence[StagedBatch]) -> None:
        staged, root = self._staged(name), self._place.root
        for parent in sorted({_parent(f"{root}/{file.name}") for batch in batches for file in batch.files}):
            self._client.make_folder(parent)
        for batch in batches:
            for file in batch.files:
                self._move(name, f"{staged}/{batch.folder}/{file.name}", file)
        for batch in batches:  # all of it is published: nothing is lost
            self._client.delete(f"{staged}/{batch.folder}", is_recursive=True)

    def discard(self, name: Name, attempt: int, keep: Sequence[JsonObject]) -> None:
        kept = {read_batch(name, dict(document)).folder for document in keep}
        for number, folder in self._folders(name):
            if number < attempt and folder not in kept:
                self._client.delete(f"{self._staged(name)}/{folder}", is_recursive=True)

    def leftovers(self, name: Name) -> Iterator[Leftover]:
        for number, folder in self._folders(name):
            files = list(self._files(f"{self._staged(name)}/{folder}"))
            if files:
                what = f"hdfs://{self._place.authority}{self._staged(name)}/{folder}"
                yield Leftover(attempt=number, what=what, bytes=sum(file.size for file in files))

    def _folders(self, name: Name) -> Iterator[tuple[int, str]]:
        """Each that an attempt has staged a batch in, as "<attempt>/<batch>-<run>"."""
        for attempt in self._client.entries(self._staged(name)):
            if attempt.name.isdecimal():
                for folder in self._client.entries(f"{self._staged(name)}/{attempt.name}"):
                    yield int(attempt.name), f"{attempt.name}/{folder.name}"

    def _files(self, folder: str, below: str = "") -> Iterator[StagedFile]:
        for entry in self._client.entries(f"{folder}/{below}".rstrip("/")):
            if entry.is_folder:
                yield from self._files(folder, f"{below}{entry.name}/")
            elif is_data(entry.name):
                yield StagedFile(name=f"{below}{entry.name}", size=entry.size)

    def _staged(self, name: Name) -> str:
        return f"{self._place.root}/.ckpt/{name.pipeline}/{name.sink}/staged"

    def _move(self, name: Name, source: str, file: StagedFile) -> None:
        target = f"{self._place.root}/{file.name}"
        if self._client.rename(source, target):
            return
        if self._client.entry(source) is not None:
            raise other_content(file.name, self._place.url)
        there = self._client.entry(target)
        if there is None or there.size != file.size:
            raise staged_is_gone(name, source, target)


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"
