"""Verifying a checkpoint: every byte of it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from airflow_provider_ckpt.operators.base import CkptOperator, given, ref_of
from airflow_provider_ckpt.protocol.records import Ref

if TYPE_CHECKING:
    from airflow.sdk import Context as TaskContext

    from airflow_provider_ckpt.coordinator.context import Context


class VerifyCheckpointOperator(CkptOperator):
    """Reads and hashes everything that a checkpoint's manifest names, and notes the verdict.

    :param checkpoint: the checkpoint's id; None: the newest completed one. (templated)
    :return: the checkpoint's id.
    """

    template_fields: Sequence[str] = (*CkptOperator.template_fields, "checkpoint")

    def __init__(self, *, checkpoint: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.checkpoint = checkpoint

    def execute(self, context: "TaskContext") -> int:
        from airflow_provider_ckpt.coordinator.verify import verify

        with self.opened(context) as ckpt:
            found = verify(ckpt, self._ref(ckpt))
        if not found.is_intact:
            raise AirflowFailException(
                f"Checkpoint {found.ref} is damaged: {found.problems[0]} ({len(found.problems)} problems in all). "
                f"It is marked, and no restore chooses it; `ckpt verify {self.pipeline}` shows which are intact."
            )
        self.log.info("%s is intact: %d files, %d bytes.", found.ref, found.files, found.bytes)
        return found.ref.id

    def _ref(self, ckpt: "Context") -> Ref:
        from airflow_provider_ckpt.coordinator.health import health

        if given(self.checkpoint) is not None:
            return ref_of(self.pipeline, self.checkpoint)
        newest = health(ckpt, self.pipeline).newest
        if newest is None:
            raise AirflowSkipException(f"Pipeline {self.pipeline} has no completed checkpoint to verify yet.")
        return newest.ref
