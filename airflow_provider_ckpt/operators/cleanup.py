"""Cleaning up: retention, and files that nobody can explain."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowException

from airflow_provider_ckpt.operators.base import CkptOperator
from airflow_provider_ckpt.protocol.metrics import of_cleaned

if TYPE_CHECKING:
    from airflow.sdk import Context as TaskContext

    from airflow_provider_ckpt.coordinator.cleanup import CleanupReport


class CleanupCheckpointsOperator(CkptOperator):
    """Lets go what the pipeline's retention does not keep, under a lease that checkpoints and restores respect.

    A cleanup that yields to a checkpoint has done a part and ends well: the next run does the rest. One that was
    killed is gone on with by the next run. What could not be deleted fails the task, after everything else was done.

    :param only_plan: only say what would go.
    :return: what went, in numbers.
    """

    template_fields: Sequence[str] = CkptOperator.template_fields

    def __init__(self, *, only_plan: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.only_plan = only_plan

    def execute(self, context: "TaskContext") -> dict[str, int]:
        from airflow_provider_ckpt.coordinator.cleanup import cleanup, plan_cleanup
        from airflow_provider_ckpt.hooks.stats import emit

        with self.opened(context) as ckpt:
            report = plan_cleanup(ckpt, self.pipeline) if self.only_plan else cleanup(ckpt, self.pipeline)
        self._say(report)
        if not self.only_plan:
            discarded, files = len(report.discarded), len(report.deleted)
            emit(of_cleaned(self.pipeline, discarded=discarded, files=files, size=report.deleted_bytes))
        if report.failed:
            path, why = next(iter(report.failed.items()))
            raise AirflowException(f"{len(report.failed)} files of {self.pipeline} did not go, first {path}: {why}")
        return {
            "kept": len(report.kept),
            "discarded": len(report.discarded),
            "deleted_files": len(report.deleted),
            "deleted_bytes": report.deleted_bytes,
        }

    def _say(self, report: "CleanupReport") -> None:
        for id_, why in report.kept.items():
            self.log.info("%s/%d is kept: %s", self.pipeline, id_, why)
        would = "would go" if self.only_plan else "went"
        self.log.info("%d checkpoints and %d files %s.", len(report.discarded), len(report.deleted), would)
        if report.has_yielded:
            self.log.info("The rest waits for the next run: a checkpoint or a restore was more urgent.")
