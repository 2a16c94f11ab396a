"""The sinks of a pipeline as others than its driver reach them: by what they said of themselves, without Spark.

A restore asks their markers and finishes their commits, a cleanup looks for what is left staged. Where a target can
not be reached from here (its library, its path or its secret is elsewhere), the store's word counts, and the driver
asks the target itself before it starts.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.coordinator.manifests import load_manifest
from airflow_provider_ckpt.protocol.codec import Fields, Json, JsonObject
from airflow_provider_ckpt.protocol.errors import CkptError, Corrupt
from airflow_provider_ckpt.protocol.manifest import Manifest
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.records import Checkpoint, Cut, Ref
from airflow_provider_ckpt.protocol.recovery import SinkMarker
from airflow_provider_ckpt.spark import sinks
from airflow_provider_ckpt.spark.sinks.base import Leftover, Name, Sink
from airflow_provider_ckpt.spark.sinks.seat import publication_of, read_marker

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """A sink at hand; a committer for the coordinator."""

    name: Name
    sink: Sink

    def commit(self, ref: Ref, staged: JsonObject, attempt: int) -> JsonObject:
        return self.sink.commit(publication_of(ref, self.name, attempt, staged)).to_json()

    def marker(self, pipeline: str) -> SinkMarker:
        return read_marker(self.sink, Name(pipeline=pipeline, sink=self.name.sink))


def reach_sinks(context: Context, pipeline: str) -> dict[str, Reached]:
    """Those of the newest decided checkpoint, by participant, as far as they can be reached from here."""
    retained = [each for each in context.store.views.inventory(pipeline).retained if each.phase is not Phase.DISCARDING]
    return _reach(pipeline, _cuts(context, retained[-1])) if retained else {}


def reach_sinks_of(manifest: Manifest) -> dict[str, Reached]:
    """Those of a checkpoint that no metastore knows any more."""
    return _reach(manifest.ref.pipeline, manifest.cuts)


def _reach(pipeline: str, cuts: Iterable[Cut]) -> dict[str, Reached]:
    targets = {cut.query: cut.properties["target"] for cut in cuts if cut.properties.get("target") is not None}
    opened = {query: _open(query, target) for query, target in targets.items()}
    return {
        f"{query}/sink": Reached(name=Name(pipeline=pipeline, sink=f"{query}/sink"), sink=sink)
        for query, sink in opened.items()
        if sink is not None
    }


def find_left_staged(context: Context, pipeline: str) -> dict[str, str]:
    """What attempts before the current one have staged, and nobody will publish: by place, whose it is.

    Before the current attempt has completed a checkpoint it may have adopted some of it.
    """
    inventory = context.store.views.inventory(pipeline)
    current = inventory.pipeline.current_attempt or 0
    if not any(each.attempt == current and each.phase is Phase.COMPLETED for each in inventory.retained):
        return {}
    found: dict[str, str] = {}
    for participant, reached in reach_sinks(context, pipeline).items():
        for left in _leftovers(reached):
            if left.attempt < current:
                found[left.what] = f"{participant} of attempt {left.attempt}, {left.bytes:,} bytes"
    return found


def _leftovers(reached: Reached) -> list[Leftover]:
    try:
        return list(reached.sink.leftovers(reached.name))
    except Exception as error:  # noqa: BLE001 - a target may raise anything; the others are looked at
        _log.warning("The target of %s can not be looked at from here: %s", reached.name, error)
        return []


def _cuts(context: Context, checkpoint: Checkpoint) -> Collection[Cut]:
    known = context.store.barriers.cuts(checkpoint.ref).values()
    if known:
        return known
    try:
        return load_manifest(context, checkpoint).cuts  # after a rebuild only the manifest has them
    except Corrupt:
        return ()


def _open(query: str, target: Json) -> Sink | None:
    try:
        fields = Fields(f"the target of {query}", target)
        make = _MAKERS.get(fields.text("kind"))
        return None if make is None else make(fields)
    except (CkptError, ImportError, OSError) as error:
        _log.info("The target of %s can not be reached from here: %s", query, error)
        return None


_MAKERS: Mapping[str, Callable[[Fields], Sink]] = {
    "files": lambda fields: sinks.FilesSink(fields.text("path"), format=fields.text("format")),
    "delta": lambda fields: sinks.DeltaSink(fields.text("path")),
    "iceberg": lambda fields: sinks.IcebergSink(fields.text("table"), catalog=fields.text("catalog")),
    "postgres": lambda fields: sinks.PostgresSink(
        fields.text("table"), url_from=fields.text("url_from"), key=fields.texts("key")
    ),
}
