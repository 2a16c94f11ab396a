"""What all sensors here have in common: the connection, the pipeline, and waiting without a worker."""

from abc import abstractmethod
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator
from airflow.sdk.exceptions import AirflowSensorTimeout

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
        self._wait(context, until=datetime.now(UTC) + timedelta(seconds=self.timeout))
        return None

    def resume(self, context: "TaskContext", event: dict[str, Any], until: str) -> None:
        """The trigger fires when there is something to see; where there is not, it waits for the rest of its time."""
        self._wait(context, until=datetime.fromisoformat(until))

    def _wait(self, context: "TaskContext", *, until: datetime) -> None:
        if self.poke(context):
            return
        left = until - datetime.now(UTC)
        if left <= timedelta(0):
            raise AirflowSensorTimeout(f"{self.pipeline}: it has waited for {self.timeout:g} s, which is its timeout.")
        self.defer(trigger=self.trigger(), method_name="resume", kwargs={"until": until.isoformat()}, timeout=left)
