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
_WHATEVER_THERE_IS = "{{ alert | default(exception, true) | default(task.pipeline ~ ' runs again.', true) }}"


class WebhookNotifier(BaseNotifier):
    """Posts one JSON document: `event`, `pipeline`, `text`, where it comes from; of an alert also `kind` and `state`.

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

    def event_of(self, context: "TaskContext") -> str:
        return self.event

    def _document(self, context: "TaskContext") -> dict[str, Any]:
        told = {"event": self.event_of(context), "pipeline": self.pipeline, "text": self.text}
        return {**told, **_place(context), **_alert(context)}


class PipelineNotifier(WebhookNotifier):
    """For `notify` of `checkpoint_dags`, which tells of three things: alerts, tasks that failed, and restores."""

    def __init__(self, *, text: str = _WHATEVER_THERE_IS, **kwargs: Any) -> None:
        super().__init__(text=text, **kwargs)

    def event_of(self, context: "TaskContext") -> str:
        if "alert" in context:
            return PipelineAlertNotifier.event
        return "task failed" if context.get("exception") else PipelineRestoredNotifier.event


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


def _place(context: "TaskContext") -> dict[str, Any]:
    """A task; or, for a deadline, a run, of which Airflow says here what its API would."""
    ti: Any = context.get("ti")
    if ti is not None:
        return {"dag_id": ti.dag_id, "run_id": ti.run_id, "task_id": ti.task_id}
    run: Any = context.get("dag_run") or {}
    return {"dag_id": run.get("dag_id"), "run_id": run.get("dag_run_id"), "task_id": None}


def _alert(context: "TaskContext") -> dict[str, str]:
    alert: Any = context.get("alert")
    return {} if alert is None else {"kind": alert.kind, "state": alert.state}


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
