"""Starting a checkpoint."""

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowSkipException

from airflow_provider_ckpt.operators.base import CkptOperator, actor_of, key_of
from airflow_provider_ckpt.protocol.metrics import of_skipped
from airflow_provider_ckpt.protocol.records import Triggered, TriggerRequest

if TYPE_CHECKING:
    from airflow.sdk import Context as TaskContext

    from airflow_provider_ckpt.coordinator.context import Context

_ACTIVE = ["queued", "running"]


class TriggerCheckpointOperator(CkptOperator):
    """Starts a checkpoint, unless there is a reason not to: then the task is skipped, with the reason.

    ::

        trigger = TriggerCheckpointOperator(task_id="trigger", pipeline="orders", cleanup_dag_id="orders__cleanup")

    It is skipped while the interval or the minimum pause has not passed, no attempt runs, a checkpoint is in flight, a
    restore works, a cleanup holds its lease, or a Dag run of the cleanup is queued or running; but cleanup can not put
    checkpoints off for longer than the pipeline's `max_deferral`. Every reason is an event in the store as well.
    A retried or cleared task finds the checkpoint that it has started; one that has failed is followed by a new one.

    :param cleanup_dag_id: the Dag that cleans this pipeline up; None: the lease alone decides. (templated)
    :param when_due: respect the interval and the minimum pause.
    :param adapt: let the interval follow what the pipeline's history advises, between these two.
    :param reason: why, for the events. (templated)
    :return: the checkpoint's id.
    """

    template_fields: Sequence[str] = (*CkptOperator.template_fields, "cleanup_dag_id", "reason")

    def __init__(
        self,
        *,
        cleanup_dag_id: str | None = None,
        when_due: bool = True,
        adapt: tuple[timedelta, timedelta] | None = None,
        reason: str = "",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.cleanup_dag_id = cleanup_dag_id
        self.when_due = when_due
        self.adapt = adapt
        self.reason = reason

    def execute(self, context: "TaskContext") -> int:
        request = TriggerRequest(
            pipeline=self.pipeline,
            key=f"airflow {key_of(context)}",
            requested_by=actor_of(context),
            reason=self.reason,
            when_due=self.when_due,
            active_cleanup_runs=self._count_cleanups(context),
        )
        with self.opened(context) as ckpt:
            self._adapt(ckpt)
            self.checkpoint = checkpoint = started(request, ckpt.store.barriers.trigger(request))
        return checkpoint

    def _adapt(self, ckpt: "Context") -> None:
        from airflow_provider_ckpt.coordinator.advising import adapt

        advice = None if self.adapt is None else adapt(ckpt, self.pipeline, bounds=self.adapt)
        if advice is not None:
            self.log.info("%s", advice.why)

    def _count_cleanups(self, context: "TaskContext") -> int:
        """Airflow counts 0 runs of a Dag that does not exist: that would hide a typing error for ever."""
        if not self.cleanup_dag_id:
            return 0
        ti: Any = context["ti"]
        ti.get_dag(self.cleanup_dag_id)
        return int(ti.get_dr_count(dag_id=self.cleanup_dag_id, states=_ACTIVE))


def started(request: TriggerRequest, triggered: Triggered) -> int:
    from airflow_provider_ckpt.hooks.stats import emit

    if triggered.checkpoint is None:
        emit(of_skipped(request.pipeline, str(triggered.skipped)))
        raise AirflowSkipException(f"Skipped ({triggered.skipped}): {triggered.detail}.")
    return triggered.checkpoint.ref.id
