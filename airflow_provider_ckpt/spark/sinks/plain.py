"""A sink without checkpoints, in a program that runs as plain Spark: every batch is published by itself, once.

The number of the batch stands for the checkpoint: a batch that Spark runs again is found by the marker.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

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
            staged = self.sink.prepare([self.sink.stage(rows, slot).document])
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        ref = Ref(self.name.pipeline, batch + 1)
        self.sink.commit(Publication(ref=ref, name=self.name, attempt=_ATTEMPT, staged=staged))
