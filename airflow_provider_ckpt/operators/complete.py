"""Completing a checkpoint that everybody has acknowledged."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_ckpt.operators.base import CkptOperator, ref_of
from airflow_provider_ckpt.protocol.blame import describe
from airflow_provider_ckpt.protocol.metrics import of_completed, of_failed
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.records import Checkpoint
from airflow_provider_ckpt.triggers.checkpoint import CheckpointTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context as TaskContext

    from airflow_provider_ckpt.coordinator.context import Context

_FINISHED = frozenset({Phase.COMPLETED, Phase.DISCARDING, Phase.DISCARDED})


class CompleteCheckpointOperator(CkptOperator):
    """Writes the manifest and decides; then waits in the triggerer until every sink has committed.

    The driver does the same by itself: whoever comes second finds it done. Its outlets get an asset event with
    `pipeline` and `checkpoint`, so that any Dag can be scheduled on completed checkpoints.

    :param checkpoint: the checkpoint's id. (templated)
    :return: the checkpoint's id.
    """

    template_fields: Sequence[str] = (*CkptOperator.template_fields, "checkpoint")

    def __init__(self, *, checkpoint: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.checkpoint = checkpoint

    def execute(self, context: "TaskContext") -> int:
        from airflow_provider_ckpt.coordinator.complete import complete

        with self.opened(context) as ckpt:
            checkpoint = complete(ckpt, ref_of(self.pipeline, self.checkpoint))
            _measure(ckpt, checkpoint)
        if checkpoint.phase not in _FINISHED:
            self.log.info("%s is %s: its sinks are publishing.", checkpoint.ref, checkpoint.phase)
            self.defer(
                trigger=CheckpointTrigger(
                    ckpt_conn_id=self.ckpt_conn_id,
                    pipeline=self.pipeline,
                    checkpoint=checkpoint.ref.id,
                    until_ended=True,
                ),
                method_name="resume",
            )
        return self._announce(checkpoint, context)

    def resume(self, context: "TaskContext", event: dict[str, Any]) -> int:
        with self.opened(context) as ckpt:
            checkpoint = ckpt.store.checkpoints.get(ref_of(self.pipeline, self.checkpoint))
            _measure(ckpt, checkpoint)
        return self._announce(check_unfailed(checkpoint), context)

    def _announce(self, checkpoint: Checkpoint, context: "TaskContext") -> int:
        for outlet in self.outlets:
            context["outlet_events"][outlet].extra = {"pipeline": self.pipeline, "checkpoint": checkpoint.ref.id}
        self.log.info("%s is %s.", checkpoint.ref, checkpoint.phase)
        return checkpoint.ref.id


def _measure(ckpt: "Context", checkpoint: Checkpoint) -> None:
    from airflow_provider_ckpt.hooks.stats import emit

    measure = ckpt.store.checkpoints.measure(checkpoint.ref)
    if measure is not None and checkpoint.phase is Phase.COMPLETED:
        emit(of_completed(checkpoint, new_bytes=measure.new_bytes, full_bytes=measure.full_bytes))


def check_unfailed(checkpoint: Checkpoint) -> Checkpoint:
    """:raises AirflowFailException: with the blame report."""
    from airflow_provider_ckpt.hooks.stats import emit

    failure = checkpoint.failure
    if failure is not None:
        emit(of_failed(checkpoint))
        raise AirflowFailException(
            f"Checkpoint {checkpoint.ref} has failed ({failure.reason}): {failure.message}; {describe(failure.blame)}. "
            "The pipeline goes on, and the next checkpoint covers what this one would have."
        )
    return checkpoint
