"""A sink without checkpoints, in a program that runs as plain Spark: every batch is published by itself, once.

The number of the batch stands for the checkpoint: a batch that Spark runs again is found by the marker.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from airflow_provider_ckpt.protocol.codec import JsonObject
from airflow_provider_ckpt.protocol.records import Ref
from airflow_provider_ckpt.spark.sinks.base import Name, Publication, Sink, Slot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ATTEMPT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainSeat:
    name: Name
    sink: Sink
    scratch: Path

    def __call__(self, rows: "DataFrame", batch: int) -> None:
        run = uuid4().hex
        scratch = self.scratch / f"{batch}-{run}"
        slot = Slot(name=self.name, attempt=_ATTEMPT, batch=batch, run=run, scratch=scratch)
        try:
            staged = self.sink.stage(rows, slot)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        if staged.rows:
            self._commit(batch, self.sink.prepare([staged.document]))

    def _commit(self, batch: int, staged: JsonObject) -> None:
        """Nobody has noted where the target must be: it is continued where it is."""
        ref, after = Ref(self.name.pipeline, batch + 1), self.sink.marker(self.name).committed
        self.sink.commit(Publication(ref=ref, name=self.name, attempt=_ATTEMPT, after=after, staged=staged))
