"""What all sensors here have in common: the connection, the pipeline, and waiting without a worker."""

from abc import abstractmethod
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator

from airflow_provider_ckpt.links.page import PageLink
from airflow_provider_ckpt.operators.base import DEFAULT_CONN_ID

if TYPE_CHECKING:
    from airflow.sdk import Context as TaskContext

    from airflow_provider_ckpt.triggers.base import CkptTrigger


class CkptSensor(BaseSensorOperator):
    """What all sensors take.

    :param pipeline: the pipeline's name. (templated)
    :param deferrable: wait in the triggerer.
    :param ckpt_conn_id: the connection to the metastore and the storage. (templated)
    """

    template_fields: Sequence[str] = ("pipeline", "ckpt_conn_id")
    operator_extra_links = (PageLink(),)
    ui_color = "#d8e8f0"

    def __init__(
        self, *, pipeline: str, deferrable: bool = True, ckpt_conn_id: str = DEFAULT_CONN_ID, **kwargs: Any
    ) -> None:
        super().__init__(**{"poke_interval": 5, **kwargs})
        self.pipeline = pipeline
        self.deferrable = deferrable
        self.ckpt_conn_id = ckpt_conn_id

    @abstractmethod
    def trigger(self) -> "CkptTrigger":
        """What fires when it is worth to look again."""

    def execute(self, context: "TaskContext") -> Any:
        if not self.deferrable:
            return super().execute(context)
        if not self.poke(context):
            self.defer(trigger=self.trigger(), method_name="resume", timeout=timedelta(seconds=self.timeout))
        return None

    def resume(self, context: "TaskContext", event: dict[str, Any]) -> None:
        """The trigger fires when there is something to see; where there is not, it waits again."""
        self.execute(context)
