"""Waiting until everybody has acknowledged."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.operators.base import opened, ref_of
from airflow_provider_ckpt.operators.complete import check_unfailed
from airflow_provider_ckpt.protocol.records import Checkpoint
from airflow_provider_ckpt.sensors.base import CkptSensor
from airflow_provider_ckpt.triggers.checkpoint import CheckpointTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context as TaskContext


class CheckpointAcksSensor(CkptSensor):
    """Waits until every participant of a checkpoint has acknowledged, or its own time is over.

    The log says how many have, and names one that is missing. When the checkpoint's time is over by the store's clock,
    it fails, and the task with it, with the blame report. A person who marks or clears the waiting task aborts the
    checkpoint.

    In the triggerer any number of sensors share one query per second.

    :param checkpoint: the checkpoint's id. (templated)
    """

    template_fields: Sequence[str] = (*CkptSensor.template_fields, "checkpoint")

    def __init__(self, *, checkpoint: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.checkpoint = checkpoint

    def trigger(self) -> CheckpointTrigger:
        id_ = ref_of(self.pipeline, self.checkpoint).id
        return CheckpointTrigger(ckpt_conn_id=self.ckpt_conn_id, pipeline=self.pipeline, checkpoint=id_)

    def poke(self, context: "TaskContext") -> bool:
        from airflow_provider_ckpt.coordinator.follow import see
        from airflow_provider_ckpt.protocol.phases import UNDECIDED

        ref = ref_of(self.pipeline, self.checkpoint)
        with opened(self.ckpt_conn_id, context) as ckpt:
            ckpt.store.checkpoints.fail_overdue(self.pipeline, actor=ckpt.actor)
            seen = see(ckpt, ref)
        checkpoint: Checkpoint = check_unfailed(seen.checkpoint)
        missing = f"; waits for {', '.join(seen.waits_for)}" if seen.waits_for else ""
        self.log.info("%s is %s: %d of %s%s", ref, checkpoint.phase, seen.acked, seen.expected or "?", missing)
        return checkpoint.phase not in UNDECIDED or (seen.expected is not None and seen.acked == seen.expected)
