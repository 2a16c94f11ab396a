"""The run task in cluster mode: an application that dies in the queue, waits there, is replaced, or is killed late."""

import asyncio
import json
import re
import sys
from collections.abc import Awaitable, Iterator
from datetime import timedelta
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException, TaskDeferred

from airflow_provider_ckpt.cli import ExitCode, main
from airflow_provider_ckpt.hooks.cluster import Application, ApplicationState, ClusterKind
from airflow_provider_ckpt.hooks.driver import DriverHook
from airflow_provider_ckpt.operators.spark_submit import CheckpointedSparkSubmitOperator
from airflow_provider_ckpt.protocol.cut import Graph
from airflow_provider_ckpt.protocol.records import AttemptStatus, DesiredState
from airflow_provider_ckpt.protocol.settings import change_settings
from airflow_provider_ckpt.triggers import attempt as waiting
from airflow_provider_ckpt.triggers.attempt import AttemptTrigger
from tests.airflow.doubles import a_context
from tests.airflow.resource_manager import ResourceManager, a_resource_manager
from tests.house import NAME, House

ID = "application_1794813644839_0001"
SETTINGS = {"attempt_ttl": "100ms"}


@pytest.fixture
def yarn(monkeypatch: pytest.MonkeyPatch) -> Iterator[ResourceManager]:
    monkeypatch.setenv("AIRFLOW__CKPT__POLL_INTERVAL", "0.05")
    monkeypatch.setattr(waiting, "_ASK_EVERY", 0.1)
    monkeypatch.setattr(waiting, "_SETTLED", 0.1)
    with a_resource_manager() as manager:
        extra = {"deploy-mode": "cluster", "yarn_resourcemanager_webapp_address": manager.url}
        monkeypatch.setenv("AIRFLOW_CONN_YARN", json.dumps({"conn_type": "spark", "host": "yarn", "extra": extra}))
        _submit_as(monkeypatch, manager, ID)
        yield manager


def _submit_as(monkeypatch: pytest.MonkeyPatch, manager: ResourceManager, id_: str) -> None:
    """What spark-submit prints, and what it leaves on the cluster."""

    def submit(hook: DriverHook, application: str = "", **_: object) -> None:
        hook._build_spark_submit_command(application)
        manager.submit(id_)
        hook._process_spark_submit_log(iter([f"INFO Client: Submitted application {id_} to ResourceManager"]))

    monkeypatch.setattr(DriverHook, "submit", submit)


def a_run(**given: Any) -> CheckpointedSparkSubmitOperator:
    arguments = {"task_id": "run", "pipeline": NAME, "application": "orders.py", "conn_id": "yarn", **given}
    return CheckpointedSparkSubmitOperator(**{"settings": SETTINGS, **arguments})


def submit(run: CheckpointedSparkSubmitOperator) -> AttemptTrigger:
    """The trigger that the task waits with, made again as the triggerer does it."""
    with pytest.raises(TaskDeferred) as deferred:
        run.execute(a_context())
    path, arguments = deferred.value.trigger.serialize()
    assert path.endswith("AttemptTrigger")
    return AttemptTrigger(**json.loads(json.dumps(arguments)))


def within_seconds(work: Awaitable[Any]) -> Any:
    async def limited() -> Any:
        return await asyncio.wait_for(work, 20)

    return asyncio.run(limited())


async def fired(trigger: AttemptTrigger) -> Any:
    async for event in trigger.run():
        return event.payload
    return None


def test_the_application_s_id_is_kept_from_the_submission_on(house: House, yarn: ResourceManager) -> None:
    submit(a_run())
    attempt = house.store.attempts.get(NAME, 1)
    assert (attempt.status, attempt.application_id) == (AttemptStatus.PLANNED, ID)
    assert attempt.submission == {"kind": "yarn", "id": ID, "url": yarn.url}
    assert attempt.submitted_at is not None


def test_an_application_that_dies_before_it_has_claimed_its_attempt_fails_it_at_once(
    house: House, yarn: ResourceManager
) -> None:
    run = a_run()
    trigger = submit(run)
    yarn.fail(ID, "Application failed 1 times due to AM Container exited with exitCode: 13")
    event = within_seconds(fired(trigger))
    with pytest.raises(AirflowFailException, match=f"its application {ID} has ended: FAILED, FAILED: .*exitCode: 13"):
        run.resume(a_context(), event)
    assert house.store.attempts.get(NAME, 1).status is AttemptStatus.FAILED
    assert house.store.events.last(NAME, "attempt.failed") is not None, "nobody wakes the restore Dag"


def test_an_application_that_the_cluster_has_forgotten_has_ended(house: House, yarn: ResourceManager) -> None:
    trigger = submit(a_run())
    yarn.apps.clear()
    assert "unknown to the resource manager" in within_seconds(fired(trigger))["why"]


def test_an_application_in_the_queue_is_waited_for_and_given_up_after_its_own_time(
    house: House, yarn: ResourceManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = a_run()
    trigger = submit(run)

    async def wait() -> Any:
        task = asyncio.create_task(fired(trigger))
        await asyncio.sleep(0.5)
        assert not task.done(), "it has waited for longer than attempt_ttl, and no longer than claim_timeout"
        change = lambda was: change_settings(was, {"claim_timeout": "1ms"})  # noqa: E731
        await asyncio.to_thread(lambda: house.store.pipelines.change(NAME, change, actor="me"))
        return await task

    event = within_seconds(wait())
    with pytest.raises(AirflowFailException, match=rf"claim_timeout. Its application {ID} is ACCEPTED") as failed:
        run.resume(a_context(), event)
    assert yarn.killed == [ID]
    advice = re.search(r"`ckpt ([^`]+)`", str(failed.value))
    assert advice is not None
    monkeypatch.setenv("CKPT_METASTORE", house.url)
    assert main(advice[1].split()) == ExitCode.DONE
    assert house.store.pipelines.get(NAME).settings.claim_timeout == timedelta(hours=1)


def test_a_cluster_that_does_not_answer_ends_nothing(house: House, yarn: ResourceManager) -> None:
    application = Application(kind=ClusterKind.YARN, id=ID, url="http://localhost:1")
    assert application.ask() is None
    assert not application.kill()
    assert Application(kind=ClusterKind.YARN, id=ID).ask() is None


def test_a_claimed_attempt_whose_application_ends_without_a_word_is_noticed_before_its_heartbeat_is_missed(
    house: House, yarn: ResourceManager
) -> None:
    run = a_run(settings={"attempt_ttl": "1h"})
    trigger = submit(run)
    house.store.attempts.claim(NAME, 1, "driver", Graph(()), application_id=ID)
    yarn.fail(ID, "Container killed on request. Exit code is 143")
    with pytest.raises(AirflowFailException, match="Exit code is 143"):
        run.resume(a_context(), within_seconds(fired(trigger)))


def test_an_application_that_was_replaced_is_ended_through_the_cluster(
    house: House, yarn: ResourceManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = a_run()
    trigger = submit(old)
    house.store.attempts.claim(NAME, 1, "driver", Graph(()), application_id=ID)
    _submit_as(monkeypatch, yarn, "application_1794813644839_0002")
    submit(a_run())  # Airflow has lost found of the first, and nobody resumes it
    assert yarn.killed == [ID]
    event = within_seconds(fired(trigger))
    for still_there, killed in ((True, [ID, ID]), (False, [ID, ID])):
        if still_there:
            yarn.submit(ID, "RUNNING")
        with pytest.raises(AirflowSkipException, match="was replaced"):
            old.resume(a_context(), event)
        assert yarn.killed == killed


def test_a_task_that_is_killed_while_its_application_waits_ends_it_through_the_cluster(
    house: House, yarn: ResourceManager
) -> None:
    trigger = submit(a_run())
    within_seconds(trigger.on_kill())
    assert yarn.killed == [ID]
    assert house.store.pipelines.get(NAME).desired_state is DesiredState.STOPPED
    assert house.store.attempts.get(NAME, 1).status is AttemptStatus.STOPPED


def test_a_task_that_is_killed_while_its_driver_runs_leaves_it_the_time_to_stop(
    house: House, yarn: ResourceManager
) -> None:
    trigger = submit(a_run())
    house.store.attempts.claim(NAME, 1, "driver", Graph(()), application_id=ID)
    within_seconds(trigger.on_kill())
    assert yarn.killed == []
    assert house.store.attempts.look(NAME, 1, "driver").desired_state is DesiredState.STOPPED


@pytest.mark.parametrize("savepoint", ["", "last"])
def test_a_late_kill_does_not_undo_a_start_that_came_after(house: House, yarn: ResourceManager, savepoint: str) -> None:
    trigger = submit(a_run(savepoint_on_kill=savepoint))
    house.store.attempts.claim(NAME, 1, "driver", Graph(()), application_id=ID)
    house.store.pipelines.desire(NAME, DesiredState.STOPPED, actor="a person")
    house.store.pipelines.desire(NAME, DesiredState.RUNNING, actor="a person")
    within_seconds(trigger.on_kill())
    assert house.store.pipelines.get(NAME).desired_state is DesiredState.RUNNING
    assert house.store.checkpoints.in_flight(NAME) is None
    assert yarn.killed == []


def test_what_was_replaced_during_its_submission_is_ended_at_once(
    house: House, yarn: ResourceManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted = DriverHook.submit

    def meanwhile(hook: DriverHook, application: str = "", **_: object) -> None:
        house.restore()
        submitted(hook, application)

    monkeypatch.setattr(DriverHook, "submit", meanwhile)
    submit(a_run())
    assert yarn.killed == [ID]


@pytest.mark.parametrize("conn_id", ["yarn", "client"])
@pytest.mark.parametrize("error", [AirflowException("queue batch is full"), FileNotFoundError("spark-submit")])
def test_a_submission_that_fails_fails_its_attempt(
    house: House, yarn: ResourceManager, monkeypatch: pytest.MonkeyPatch, error: Exception, conn_id: str
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CLIENT", json.dumps({"conn_type": "spark", "host": "local[1]"}))

    def refuse(hook: DriverHook, application: str = "", **_: object) -> None:
        raise error

    monkeypatch.setattr(DriverHook, "submit", refuse)
    with pytest.raises(AirflowFailException, match=str(error)):
        a_run(conn_id=conn_id).execute(a_context())
    assert house.store.attempts.get(NAME, 1).status is AttemptStatus.FAILED


def test_yarn_starts_no_second_driver_of_an_attempt_by_itself_unless_somebody_says_so(
    house: House, yarn: ResourceManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []
    build = DriverHook._build_spark_submit_command

    def built(hook: DriverHook, application: str) -> list[str]:
        commands.append(build(hook, application))
        return commands[-1]

    monkeypatch.setattr(DriverHook, "_build_spark_submit_command", built)
    submit(a_run())
    submit(a_run(conf={"spark.yarn.maxAppAttempts": "2"}))
    assert "spark.yarn.maxAppAttempts=1" in commands[0]
    assert "spark.yarn.maxAppAttempts=2" in commands[1]


def test_kubernetes_is_asked_through_its_own_client(monkeypatch: pytest.MonkeyPatch) -> None:
    class ApiException(Exception):
        status = 404

    class Client:
        pods: ClassVar = {"orders-driver": "Pending"}

        def read_namespaced_pod(self, name: str, namespace: str) -> Any:
            if (name, namespace) != ("orders-driver", "etl") or name not in self.pods:
                raise ApiException
            return SimpleNamespace(status=SimpleNamespace(phase=self.pods[name]))

        def delete_namespaced_pod(self, name: str, namespace: str) -> None:
            assert namespace == "etl"
            if self.pods.pop(name, None) is None:
                raise ApiException

    module = ModuleType("airflow.providers.cncf.kubernetes.kube_client")
    vars(module).update(ApiException=ApiException, get_kube_client=Client)
    monkeypatch.setitem(sys.modules, "airflow.providers.cncf.kubernetes", ModuleType("kubernetes"))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    application = Application(kind=ClusterKind.KUBERNETES, id="orders-driver", url="etl")
    assert application.ask() == ApplicationState(state="Pending", has_ended=False)
    assert application.kill()
    assert application.kill(), "one that is gone is fine"
    assert application.ask() == ApplicationState(state="there is no such pod", has_ended=True)
