"""Taking a savepoint: a checkpoint with a name, kept until somebody deletes it on purpose."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.operators.base import CkptOperator, actor_of, key_of
from airflow_provider_ckpt.operators.complete import check_unfailed
from airflow_provider_ckpt.operators.trigger import started
from airflow_provider_ckpt.protocol.records import Ref, TriggerRequest
from airflow_provider_ckpt.triggers.checkpoint import CheckpointTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context as TaskContext


class SavepointOperator(CkptOperator):
    """Takes a savepoint and waits for it in the triggerer.

    :param savepoint: its name. (templated)
    :param then_stop: stop the pipeline with it.
    :param reason: why, for the events. (templated)
    :return: the checkpoint's id.
    """

    template_fields: Sequence[str] = (*CkptOperator.template_fields, "savepoint", "reason")

    def __init__(self, *, savepoint: str, then_stop: bool = False, reason: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.savepoint = savepoint
        self.then_stop = then_stop
        self.reason = reason

    def execute(self, context: "TaskContext") -> None:
        request = TriggerRequest(
            pipeline=self.pipeline,
            key=f"airflow {key_of(context)}",
            requested_by=actor_of(context),
            reason=self.reason,
            savepoint=self.savepoint,
            then_stop=self.then_stop,
        )
        with self.opened(context) as ckpt:
            checkpoint = started(request, ckpt.store.barriers.trigger(request))
        self._wait(checkpoint, until_ended=False)

    def resume(self, context: "TaskContext", event: dict[str, Any], checkpoint: int) -> int:
        """All have acknowledged, or it has ended: complete it, and wait for sinks that are still publishing."""
        from airflow_provider_ckpt.coordinator.follow import follow

        self.checkpoint = checkpoint
        ref = Ref(self.pipeline, checkpoint)
        with self.opened(context) as ckpt:
            found = check_unfailed(follow(ckpt, ref, timeout=0.0))
        if found.is_in_flight:
            self._wait(checkpoint, until_ended=True)
        self.log.info("%s (savepoint %s) is %s.", ref, self.savepoint, found.phase)
        return checkpoint

    def _wait(self, checkpoint: int, *, until_ended: bool) -> None:
        self.defer(
            trigger=CheckpointTrigger(
                ckpt_conn_id=self.ckpt_conn_id,
                pipeline=self.pipeline,
                checkpoint=checkpoint,
                until_ended=until_ended,
            ),
            method_name="resume",
            kwargs={"checkpoint": checkpoint},
        )
