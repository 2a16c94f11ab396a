"""Looking after a pipeline: is it as it should be, and is anybody doing something about it?"""

from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseNotifier
from airflow.sdk.exceptions import AirflowSkipException

from airflow_provider_ckpt.operators.base import CkptOperator, start_dag
from airflow_provider_ckpt.protocol.alerts import Alert
from airflow_provider_ckpt.protocol.metrics import Metric, of_look

if TYPE_CHECKING:
    from airflow.sdk import Context as TaskContext

    from airflow_provider_ckpt.coordinator.context import Context


class WatchPipelineOperator(CkptOperator):
    """Compares a pipeline with its objectives, which are among its settings, and tells people of what is wrong.

    Each problem is told once, again as often as `remind_every` says, and once when it is over; nothing is told while
    `ckpt silence` lasts. What was told is in the store's events: neither a restarted scheduler nor the driver's own
    watch tells it again.

    :param dag_ids: Dags of the pipeline that must not be paused while it is meant to run. (templated)
    :param notifiers: any of Airflow's; they find an `alert` in their context, with `pipeline`, `kind`, `state`, `text`.
    :return: what is wrong now.
    """

    template_fields: Sequence[str] = (*CkptOperator.template_fields, "dag_ids")

    def __init__(self, *, dag_ids: Sequence[str] = (), notifiers: Sequence[BaseNotifier] = (), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dag_ids = dag_ids
        self.notifiers = notifiers

    def execute(self, context: "TaskContext") -> list[str]:
        from airflow_provider_ckpt.coordinator.sla import judge
        from airflow_provider_ckpt.hooks.stats import emit

        with self.opened(context) as ckpt:
            problems = judge(ckpt, self.pipeline, paused=self._paused(context))
            self.log.info("%s: %s", self.pipeline, "; ".join(map(str, problems)) or "all is well")
            emit(self._seen(ckpt, len(problems)))
            for alert in ckpt.store.alerts.raise_for(self.pipeline, problems, actor=ckpt.actor):
                self._tell(ckpt, alert, context)
        return [each.text for each in problems]

    def _seen(self, ckpt: "Context", problems: int) -> list[Metric]:
        from airflow_provider_ckpt.coordinator.health import health

        found = health(ckpt, self.pipeline)
        limit = found.pipeline.settings.objectives.recovery_point
        return of_look(self.pipeline, age=found.age, recovery_point=limit, problems=problems)

    def _tell(self, ckpt: "Context", alert: Alert, context: "TaskContext") -> None:
        """Every notifier, once; what did not reach one of them is told again at the next look, rather than never."""
        self.log.info("Telling: %s", alert)
        for notifier in self.notifiers:
            try:
                copy(notifier)({**context, "alert": alert})  # it renders itself, once in its life
            except Exception as error:
                ckpt.store.alerts.take_back(alert, actor=ckpt.actor, reason=f"{type(notifier).__name__}: {error}")
                raise

    def _paused(self, context: "TaskContext") -> list[str]:
        ti: Any = context["ti"]
        return [dag_id for dag_id in self.dag_ids if ti.get_dag(dag_id).is_paused]


class SweepPipelineOperator(CkptOperator):
    """Starts the restore Dag of a pipeline that needs it and has none at work; skipped when there is nothing to do.

    Events wake the restore Dag at once, and some of them get lost in Airflow: this closes the gap.

    :param restore_dag_id: the Dag to start. (templated)
    """

    template_fields: Sequence[str] = (*CkptOperator.template_fields, "restore_dag_id")

    def __init__(self, *, restore_dag_id: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.restore_dag_id = restore_dag_id

    def execute(self, context: "TaskContext") -> None:
        from airflow_provider_ckpt.coordinator.diagnosis import Need, diagnose

        ti: Any = context["ti"]
        with self.opened(context) as ckpt:
            ckpt.store.attempts.note_silence(actor=ckpt.actor)
            ckpt.store.checkpoints.fail_overdue(self.pipeline, actor=ckpt.actor)
            found = diagnose(ckpt, self.pipeline, jitter=0.0)
        if found.need is not Need.RESTORE:
            raise AirflowSkipException(f"{self.pipeline} needs no restore: {found.why}")
        if ti.get_dr_count(dag_id=self.restore_dag_id, states=["queued", "running"]):
            raise AirflowSkipException(f"{self.restore_dag_id} is at work: {found.why}")
        self.log.info("%s: %s", self.pipeline, found.why)
        start_dag(self.restore_dag_id, f"after-attempt-{found.attempt or 0}-{ti.run_id}", conf={})
