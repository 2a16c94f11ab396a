"""What targets tell of an attempt that has left no checkpoint: where it went back to.

An attempt that goes back takes its targets along, and says so in them; its own first checkpoint comes later. When it
dies in between and the metastore is lost, no manifest knows of it, and its targets do.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from airflow_provider_ckpt.protocol.manifest import Manifest
from airflow_provider_ckpt.protocol.pledge import expected_marker
from airflow_provider_ckpt.protocol.recovery import SinkMarker


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """An attempt, and the checkpoint that it went back to; 0: to nothing."""

    attempt: int
    at: int


def find_fork(newest: Manifest, known: Collection[int], markers: Mapping[str, SinkMarker]) -> Fork | None:
    """Whether an attempt after the newest checkpoint has gone back to one of those that are known.

    The newest attempt's word counts. A target that can not go back stays where it was, so the oldest place counts.
    """
    newer = {sink: marker for sink, marker in markers.items() if marker.attempt > newest.attempt}
    moved = [marker for sink, marker in newer.items() if (marker.committed or 0) not in _places(newest, sink)]
    if not moved:
        return None
    chosen = min(moved, key=lambda marker: (-marker.attempt, marker.committed or 0))
    at = chosen.committed or 0
    attempt = max(marker.attempt for marker in newer.values())
    return Fork(attempt=attempt, at=at) if at == 0 or at in known else None


def _places(newest: Manifest, sink: str) -> tuple[int, ...]:
    """Where a target is that has the newest checkpoint, or waits for its commit."""
    after = [expected_marker(part.staged) or 0 for part in newest.sinks if part.participant == sink]
    return (newest.ref.id, *after)
