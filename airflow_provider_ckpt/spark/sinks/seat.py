"""The seat of a sink in an attempt: stages its query's batches, says what a checkpoint publishes, and publishes it."""

import logging
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from airflow_provider_ckpt.protocol.codec import Fields, JsonObject
from airflow_provider_ckpt.protocol.pledge import expected_marker
from airflow_provider_ckpt.protocol.records import Ref
from airflow_provider_ckpt.protocol.recovery import SinkMarker
from airflow_provider_ckpt.spark.sinks.base import Name, Publication, Sink, Slot
from airflow_provider_ckpt.spark.sinks.ledger import Ledger

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_log = logging.getLogger("airflow_provider_ckpt.spark")


@dataclass(slots=True, kw_only=True)
class Seat:
    """Called by Spark with every micro-batch; a committer for the coordinator."""

    name: Name
    attempt: int
    sink: Sink
    ledger: Ledger
    scratch: Path
    published: int | None = None  # the checkpoint that the target's marker is at
    is_marker_known: bool = True  # False: a person has said what became of a commit, and the target has not

    def __call__(self, rows: "DataFrame", batch: int) -> None:
        """Stage a micro-batch."""
        scratch = self.scratch / f"{batch}-{uuid4().hex}"
        slot = Slot(name=self.name, attempt=self.attempt, batch=batch, run=uuid4().hex, scratch=scratch)
        try:
            self.ledger.enter(batch, self.sink.stage(rows, slot))
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def pledge(self, batch: int | None) -> JsonObject:
        """What a checkpoint with this cut will publish: all that was staged since the last publication."""
        batches = self.ledger.upto(batch)
        staged = list(batches.values())
        self._ask_target()
        return {
            "after": self.published,
            "batches": list(batches),
            "rows": sum(each.rows for each in staged),
            "bytes": sum(each.bytes for each in staged),
            "files": sum(each.files for each in staged),
            "publish": self.sink.prepare([each.document for each in staged if each.rows]),
        }

    def commit(self, ref: Ref, staged: JsonObject, attempt: int) -> JsonObject:
        published = self.sink.commit(publication_of(ref, self.name, attempt, staged))
        self.published = max(self.published or 0, ref.id)
        _log.info("%s: %s has published %d rows (%s)", ref, self.name.sink, published.rows, published.version)
        return published.to_json()

    def marker(self, pipeline: str) -> SinkMarker:
        return read_marker(self.sink, Name(pipeline=pipeline, sink=self.name.sink))

    def completed(self, batch: int | None, *, is_resolved: bool) -> None:
        """A checkpoint with this cut is completed, by a commit, or because a person has said what became of it."""
        self.ledger.forget(batch)
        self.is_marker_known = self.is_marker_known and not is_resolved

    def discard(self, batch: int | None) -> None:
        """Let go what older attempts have left, but for what this one has adopted."""
        self.sink.discard(self.name, self.attempt, self._kept(batch))

    def clear(self, batch: int | None) -> None:
        """The attempt ends: let go what lies beyond its newest batch as well."""
        self.ledger.forget_after(batch)
        self.sink.discard(self.name, self.attempt + 1, self._kept(batch))

    def _ask_target(self) -> None:
        """What a person said of a commit is true of the pipeline; only the target knows where its marker is."""
        if not self.is_marker_known:
            self.published = self.sink.marker(self.name).committed
            self.is_marker_known = True

    def _kept(self, batch: int | None) -> list[JsonObject]:
        return [each.document for each in self.ledger.upto(batch).values()]


def publication_of(ref: Ref, name: Name, attempt: int, staged: JsonObject) -> Publication:
    document = Fields(f"what {name} staged for {ref}", dict(staged)).object("publish")
    return Publication(ref=ref, name=name, attempt=attempt, after=expected_marker(staged), staged=document)


def read_marker(sink: Sink, name: Name) -> SinkMarker:
    """With the history, which takes longer to read: for a choice of where to go."""
    return replace(sink.marker(name), history=sink.history(name))
