"""The log of Spark's own file sink: which files are published, batch by batch.

It lies in the output's folder, `_spark_metadata`, and can not be rewound from itself once it is compacted (a compacted
entry does not say which batch it came with): so a checkpoint keeps it as it was.
"""

from dataclasses import dataclass
from pathlib import Path

from airflow_provider_ckpt.spark.streaming import logs
from airflow_provider_ckpt.spark.streaming.location import Piece
from airflow_provider_ckpt.spark.streaming.logs import Vanished

FOLDER = "_spark_metadata"


@dataclass(frozen=True, slots=True)
class SinkLog:
    """The log of one output folder."""

    output: Path
    written_as: Path | None = None  # where it was when Spark wrote the log; None: where it is

    @property
    def newest(self) -> int | None:
        return max((each.batch for each in logs.entries(self._folder)), default=None)

    def upto(self, batch: int | None) -> tuple[Piece, ...]:
        """The files of the log that tell what was published up to a batch.

        :raises Vanished: when Spark has compacted them away.
        """
        last = self._last(batch)
        if last is None:
            return ()
        return tuple(
            Piece(name=f"{FOLDER}/{file.name}", source=self._folder / file.name)
            for file in logs.log_files(self._folder, last)
        )

    def published(self, batch: int | None) -> dict[str, int]:
        """Every published path up to a batch, with the batch it came with, as far as that can be told.

        A path that only a compacted file names has that file's batch: it came with it or before.

        :raises Vanished: when Spark has compacted away what tells it.
        """
        last = self._last(batch)
        if last is None:
            return {}
        needed = logs.log_files(self._folder, last)
        found: dict[str, int] = {}
        for file in (*self._before(needed[0].batch), *needed):
            for line in logs.log_lines(self._folder / file.name):
                found.setdefault(logs.path_of(self._folder / file.name, line), file.batch)
        return found

    def data(self, uri: str) -> Piece:
        """A published file.

        :raises Corrupt: when it lies elsewhere.
        """
        name = logs.below(self.written_as or self.output, uri)
        return Piece(name=name, source=self.output / name)

    def _before(self, first: int) -> list[logs.LogFile]:
        """The files since the compaction before: they tell apart what the newest one has put together."""
        older = sorted((each for each in logs.entries(self._folder) if each.batch < first), key=lambda each: each.batch)
        base = max((index for index, each in enumerate(older) if each.is_compact), default=0)
        return older[base:]

    def _last(self, batch: int | None) -> int | None:
        """The newest entry ≤ batch: a batch without a row may have left none, unless compaction has taken it away."""
        if batch is None:
            return None
        there = logs.entries(self._folder)
        newest = max((each.batch for each in there if each.batch <= batch), default=None)
        if newest != batch and any(each.is_compact and each.batch > batch for each in there):
            raise Vanished(f"{self._folder}/{batch} is gone")
        return newest

    @property
    def _folder(self) -> Path:
        return self.output / FOLDER
