"""Notifiers that tell a webhook what became of a checkpoint or a pipeline.

Any other notifier of Airflow (Slack, e-mail, PagerDuty) works in their place: what there is to say is in the task's
return value and in its exception.
"""

import asyncio
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

from airflow.sdk import BaseHook, BaseNotifier

if TYPE_CHECKING:
    from airflow.sdk import Connection
    from airflow.sdk import Context as TaskContext

_PATIENCE = 10.0  # seconds


class WebhookNotifier(BaseNotifier):
    """Posts one JSON document: `event`, `pipeline`, `text`, and where it comes from.

    :param http_conn_id: a connection of type HTTP: host (a whole URL), and a bearer token as its password.
    :param pipeline: the pipeline's name. (templated)
    :param text: what to say. (templated)
    """

    event = "event"
    template_fields: Sequence[str] = ("pipeline", "text")

    def __init__(self, *, http_conn_id: str, pipeline: str, text: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.http_conn_id = http_conn_id
        self.pipeline = pipeline
        self.text = text

    def notify(self, context: "TaskContext") -> None:
        _post(BaseHook.get_connection(self.http_conn_id), self._document(context))

    async def async_notify(self, context: "TaskContext") -> None:
        """In the triggerer, as the callback of a deadline."""
        connection = await BaseHook.aget_connection(self.http_conn_id)
        await asyncio.to_thread(_post, connection, self._document(context))

    def _document(self, context: "TaskContext") -> dict[str, Any]:
        ti: Any = context.get("ti")
        return {
            "event": self.event,
            "pipeline": self.pipeline,
            "text": self.text,
            "dag_id": None if ti is None else ti.dag_id,
            "run_id": None if ti is None else ti.run_id,
            "task_id": None if ti is None else ti.task_id,
        }


class CheckpointCompletedNotifier(WebhookNotifier):
    """For `on_success_callback` of `CompleteCheckpointOperator`."""

    event = "checkpoint completed"

    def __init__(self, *, text: str = "A checkpoint of {{ task.pipeline }} is complete.", **kwargs: Any) -> None:
        super().__init__(text=text, **kwargs)


class CheckpointFailedNotifier(WebhookNotifier):
    """For `on_failure_callback` of the tasks of a checkpoint Dag: the exception has the blame report."""

    event = "checkpoint failed"

    def __init__(self, *, text: str = "{{ exception }}", **kwargs: Any) -> None:
        super().__init__(text=text, **kwargs)


class PipelineRestoredNotifier(WebhookNotifier):
    """For `on_success_callback` of the last task of a restore Dag."""

    event = "pipeline restored"

    def __init__(self, *, text: str = "{{ task.pipeline }} runs again.", **kwargs: Any) -> None:
        super().__init__(text=text, **kwargs)


class PipelineAlertNotifier(WebhookNotifier):
    """For the `notifiers` of `WatchPipelineOperator`."""

    event = "pipeline alert"

    def __init__(self, *, text: str = "{{ alert }}", **kwargs: Any) -> None:
        super().__init__(text=text, **kwargs)


class CheckpointLateNotifier(WebhookNotifier):
    """For a `DeadlineAlert` on the checkpoint Dag: a run has not finished in time."""

    event = "checkpoint late"

    def __init__(self, *, text: str = "A run of {{ dag_run.dag_id }} has not finished in time.", **kwargs: Any) -> None:
        super().__init__(text=text, **kwargs)


def _post(connection: "Connection", document: dict[str, Any]) -> None:
    headers = {"Content-Type": "application/json"}
    if connection.password:
        headers["Authorization"] = f"Bearer {connection.password}"
    request = Request(_checked(connection.host or ""), json.dumps(document).encode(), headers)  # noqa: S310 - checked
    with urlopen(request, timeout=_PATIENCE):  # noqa: S310 - checked
        pass


def _checked(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise ValueError("The webhook's connection needs a host that begins with http:// or https://.")
    return url
