"""The operator that runs a pipeline, without Spark: what it plans, what it concludes, and what a kill means."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, TaskDeferred
from airflow.serialization.serialized_objects import DagSerialization

from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.hooks import driver
from airflow_provider_ckpt.hooks.ckpt import Access
from airflow_provider_ckpt.hooks.driver import DriverHook
from airflow_provider_ckpt.notifications.webhook import CheckpointFailedNotifier, PipelineNotifier
from airflow_provider_ckpt.operators.cleanup import CleanupCheckpointsOperator
from airflow_provider_ckpt.operators.spark_submit import CheckpointedSparkSubmitOperator
from airflow_provider_ckpt.operators.trigger import TriggerCheckpointOperator
from airflow_provider_ckpt.protocol.alerts import Alert, AlertState
from airflow_provider_ckpt.protocol.cut import Graph, Query
from airflow_provider_ckpt.protocol.objectives import ProblemKind
from airflow_provider_ckpt.protocol.records import AttemptStatus, DesiredState
from airflow_provider_ckpt.sensors.acks import CheckpointAcksSensor
from tests.airflow.doubles import a_context
from tests.house import NAME, House
from tests.receivers import Webhook, a_webhook


@pytest.fixture(autouse=True)
def _spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[1]"}))
    cluster = {"conn_type": "spark", "host": "spark://master:7077", "extra": {"deploy-mode": "cluster"}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_CLUSTER", json.dumps(cluster))


def a_run(**given: Any) -> CheckpointedSparkSubmitOperator:
    arguments = {
        "task_id": "run",
        "pipeline": NAME,
        "application": "orders.py",
        "settings": {"attempt_ttl": "100ms"},
        **given,
    }
    return CheckpointedSparkSubmitOperator(**arguments)


def submitting(
    monkeypatch: pytest.MonkeyPatch, house: House, status: AttemptStatus | None, words: str = ""
) -> list[int]:
    """A driver that claims its attempt and ends it; what was submitted."""
    submitted: list[int] = []

    def hold(hook: DriverHook, access: object, attempt: tuple[str, int], application: str) -> str:
        name, number = attempt
        submitted.append(number)
        house.store.attempts.claim(name, number, "driver", Graph((Query(name="orders"),)))
        if status is not None:
            house.store.attempts.end(name, number, status, actor="driver", failure="it broke")
        return words

    monkeypatch.setattr(driver, "hold", hold)
    return submitted


def test_every_execution_is_a_new_attempt_and_a_planned_one_is_taken(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted = submitting(monkeypatch, house, AttemptStatus.FINISHED)
    a_run().execute(a_context())
    assert submitted == [1]
    pipeline = house.store.pipelines.get(NAME)
    assert pipeline.current_attempt == 1
    with pytest.raises(AirflowFailException, match="no checkpoint that can be restored"):
        a_run().execute(a_context())


def test_an_attempt_that_a_restore_has_planned_is_run(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.checkpoint(house.pipeline())
    house.restore()
    submitted = submitting(monkeypatch, house, AttemptStatus.FINISHED)
    a_run(attempt="2").execute(a_context())
    house.store.pipelines.desire(NAME, DesiredState.RUNNING, actor="me")
    a_run(attempt="2").execute(a_context())  # cleared: it has run already
    assert submitted == [2, 3]


def test_what_became_of_the_driver_is_what_the_store_says(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.checkpoint(house.pipeline())
    submitting(monkeypatch, house, AttemptStatus.FAILED)
    with pytest.raises(AirflowFailException, match="has failed: it broke"):
        a_run().execute(a_context())
    submitting(monkeypatch, house, None, words="its driver ended with exit code -9")
    with pytest.raises(AirflowFailException, match="exit code -9"):
        a_run().execute(a_context())
    number = house.store.pipelines.get(NAME).current_attempt or 0
    assert house.store.attempts.get(NAME, number).status is AttemptStatus.FAILED


def test_a_stopped_pipeline_stays_stopped_unless_it_was_stopped_by_killing_this_task(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.checkpoint(house.pipeline())
    submitted = submitting(monkeypatch, house, AttemptStatus.STOPPED)
    run = a_run()
    run.execute(a_context())
    run.on_kill()
    assert house.store.pipelines.get(NAME).desired_state is DesiredState.STOPPED
    a_run().execute(a_context())  # cleared, or tried again
    assert len(submitted) == 2
    assert house.store.pipelines.get(NAME).desired_state is DesiredState.RUNNING
    house.store.pipelines.desire(NAME, DesiredState.STOPPED, actor="a person")
    with pytest.raises(AirflowSkipException, match="is meant to be stopped"):
        a_run().execute(a_context())
    assert len(submitted) == 2


@pytest.mark.parametrize("savepoint", ["", "last"])
def test_an_execution_that_airflow_has_replaced_does_not_stop_the_new_one(
    house: House, monkeypatch: pytest.MonkeyPatch, savepoint: str
) -> None:
    """Airflow resets a healthy task, and ends its process before the new one, at the worst moment, or after it."""
    house.checkpoint(house.pipeline())
    submitting(monkeypatch, house, None)
    old, new = a_run(savepoint_on_kill=savepoint), a_run(savepoint_on_kill=savepoint)
    with pytest.raises(AirflowFailException):
        old.execute(a_context())
    plan = new._plan

    def end_the_old_one_before_the_fence(ckpt: Context, access: Access) -> int:
        old.on_kill()
        assert house.store.pipelines.get(NAME).desired_state is DesiredState.STOPPED
        return plan(ckpt, access)

    monkeypatch.setattr(new, "_plan", end_the_old_one_before_the_fence)
    with pytest.raises(AirflowFailException):
        new.execute(a_context())
    assert house.store.pipelines.get(NAME).desired_state is DesiredState.RUNNING
    old.on_kill()
    assert house.store.pipelines.get(NAME).desired_state is DesiredState.RUNNING
    new.on_kill()
    assert house.store.pipelines.get(NAME).desired_state is DesiredState.STOPPED


def test_in_cluster_mode_the_task_waits_in_the_triggerer(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[str] = []
    monkeypatch.setattr(DriverHook, "submit_and_leave", lambda hook, application: left.append(application))
    with pytest.raises(TaskDeferred) as deferred:
        a_run(conn_id="spark_cluster", savepoint_on_kill="last").execute(a_context())
    arguments = deferred.value.trigger.serialize()[1]
    assert (left, arguments["attempt"], arguments["savepoint"]) == (["orders.py"], 1, "last")
    house.store.attempts.claim(NAME, 1, "driver", Graph(()))
    house.store.attempts.end(NAME, 1, AttemptStatus.FINISHED, actor="driver")
    a_run(conn_id="spark_cluster").resume(a_context(), {"attempt": 1})


def test_operators_and_sensors_can_be_mapped_over_pipelines() -> None:
    with DAG("fleet", schedule=None) as dag:
        trigger = TriggerCheckpointOperator.partial(task_id="trigger").expand(pipeline=["orders", "payments"])
        CleanupCheckpointsOperator.partial(task_id="cleanup").expand(pipeline=["orders", "payments"])
        CheckpointAcksSensor.partial(task_id="acks", pipeline="orders").expand(checkpoint=trigger.output)
    again = DagSerialization.from_dict(DagSerialization.to_dict(dag))
    assert all(again.get_task(name).is_mapped for name in ("trigger", "cleanup", "acks"))


def test_a_webhook_hears_what_failed_and_the_token_is_in_the_header_only(monkeypatch: pytest.MonkeyPatch) -> None:
    with a_webhook() as webhook:
        hook = {"conn_type": "http", "host": webhook.url, "password": "hush"}
        monkeypatch.setenv("AIRFLOW_CONN_HOOK", json.dumps(hook))
        notifier = CheckpointFailedNotifier(http_conn_id="hook", pipeline=NAME)
        notifier({**a_context(), "exception": "Checkpoint orders/3 has failed (timed-out)"})
    ((authorization, document),) = webhook.heard
    assert authorization == "Bearer hush"
    assert (document["event"], document["pipeline"]) == ("checkpoint failed", NAME)
    assert document["text"] == "Checkpoint orders/3 has failed (timed-out)"
    monkeypatch.setenv("AIRFLOW_CONN_HOOK", json.dumps({"conn_type": "http", "host": "file:///etc/passwd"}))
    with pytest.raises(ValueError, match="begins with http"):
        CheckpointFailedNotifier(http_conn_id="hook", pipeline=NAME).notify(a_context())


def test_one_notifier_tells_of_alerts_failures_and_restores(hook: Webhook) -> None:
    """In a Dag a name that does not exist is an error: none of the three knows what the others say."""
    with DAG("orders__restore"):
        task = CleanupCheckpointsOperator(task_id="cleanup", pipeline=NAME)
    context = {**a_context(), "dag": task.dag, "task": task}
    alert = Alert(pipeline=NAME, kind=ProblemKind.STALE, state=AlertState.NEW, text="it is old")
    for more in ({"alert": alert}, {"exception": AirflowFailException("no room")}, {}):
        PipelineNotifier(http_conn_id="hook", pipeline=NAME)({**context, **more})
    assert [(each["event"], each["text"]) for each in hook.documents] == [
        ("pipeline alert", f"{NAME}: it is old"),
        ("task failed", "no room"),
        ("pipeline restored", f"{NAME} runs again."),
    ]
    assert [each.get("kind") for each in hook.documents] == ["stale", None, None]


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Webhook]:
    with a_webhook() as webhook:
        monkeypatch.setenv("AIRFLOW_CONN_HOOK", json.dumps({"conn_type": "http", "host": webhook.url}))
        yield webhook
