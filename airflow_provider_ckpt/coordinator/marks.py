"""What is special about a checkpoint beside its phase."""

from airflow_provider_ckpt.metastore import Metastore
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.records import Checkpoint
from airflow_provider_ckpt.protocol.timeline import Timeline, current_timeline


class Marker:
    """Marks any number of checkpoints of one pipeline by what the store says now."""

    def __init__(self, store: Metastore, pipeline: str) -> None:
        self._timeline: Timeline = current_timeline(store.attempts.of(pipeline))
        self._pinned = {pin.ref.id for pin in store.pins.of(pipeline)}

    def marks(self, checkpoint: Checkpoint) -> list[str]:
        marks = [f"savepoint {checkpoint.name}"] if checkpoint.name else []
        marks += ["pinned"] if checkpoint.ref.id in self._pinned else []
        marks += [checkpoint.verdict] if checkpoint.verdict else []
        marks += ["abandoned"] if self._is_abandoned(checkpoint) else []
        return marks

    def _is_abandoned(self, checkpoint: Checkpoint) -> bool:
        is_held = self._timeline.holds(checkpoint.attempt, checkpoint.ref.id)
        return checkpoint.phase is Phase.COMPLETED and not is_held
