"""Operators and sensors on a real store, with scripted drivers and a task instance that runs nowhere."""

import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from airflow.providers.smtp.notifications.smtp import SmtpNotifier
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import Asset
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    DagRunTriggerException,
    TaskDeferred,
)

from airflow_provider_ckpt.coordinator.complete import complete
from airflow_provider_ckpt.notifications.webhook import PipelineAlertNotifier
from airflow_provider_ckpt.operators.cleanup import CleanupCheckpointsOperator
from airflow_provider_ckpt.operators.complete import CompleteCheckpointOperator
from airflow_provider_ckpt.operators.restore import (
    ApproveRestoreOperator,
    DecideRestoreOperator,
    RestoreCheckpointOperator,
    StartRunOperator,
)
from airflow_provider_ckpt.operators.savepoint import SavepointOperator
from airflow_provider_ckpt.operators.sla import SweepPipelineOperator, WatchPipelineOperator
from airflow_provider_ckpt.operators.trigger import TriggerCheckpointOperator
from airflow_provider_ckpt.operators.verify import VerifyCheckpointOperator
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.records import AttemptStatus, DesiredState, Ref, Rung
from airflow_provider_ckpt.protocol.settings import change_settings
from airflow_provider_ckpt.sensors.acks import CheckpointAcksSensor
from airflow_provider_ckpt.sensors.pipeline import CheckpointFreshSensor, PipelineHealthySensor
from tests.airflow.doubles import NoSuchDag, a_context
from tests.house import NAME, SETTINGS, House
from tests.receivers import a_mailbox, a_webhook


def a_trigger(**given: Any) -> TriggerCheckpointOperator:
    return TriggerCheckpointOperator(task_id="trigger", pipeline=NAME, **given)


def reasons(house: House) -> list[str]:
    return [each.reason for each in house.store.events.newest(NAME) if each.kind == "trigger.skipped"]


# triggering


def test_a_retried_or_cleared_task_finds_the_checkpoint_that_it_has_started(house: House) -> None:
    house.pipeline()
    first = a_trigger().execute(a_context())
    assert a_trigger().execute(a_context()) == first
    with pytest.raises(AirflowSkipException, match=r"in-flight"):
        a_trigger().execute(a_context(run_id="scheduled__2"))


def test_a_failed_checkpoint_is_followed_by_a_new_one_of_the_same_task(house: House) -> None:
    house.pipeline()
    first = a_trigger(when_due=False).execute(a_context())
    house.store.checkpoints.fail(Ref(NAME, first), "aborted", "by a test", actor="tester")  # type: ignore[arg-type]
    assert a_trigger(when_due=False).execute(a_context()) == first + 1
    assert house.get(Ref(NAME, first + 1)).retry_of == first


def test_an_active_cleanup_run_puts_a_checkpoint_off_but_not_for_ever(house: House) -> None:
    house.pipeline()
    busy = a_context(active={"orders__cleanup": 1})
    with pytest.raises(AirflowSkipException, match=r"cleanup-run-active.*1 cleanup Dag run\(s\) are queued or running"):
        a_trigger(cleanup_dag_id="orders__cleanup").execute(busy)
    assert "cleanup Dag run" in reasons(house)[0]
    house.store.pipelines.change(NAME, lambda was: change_settings(was, {"max_deferral": "0s"}), actor="tester")
    assert a_trigger(cleanup_dag_id="orders__cleanup").execute(busy) == 1


def test_a_cleanup_dag_that_does_not_exist_is_a_typing_error_not_zero_runs(house: House) -> None:
    house.pipeline()
    with pytest.raises(NoSuchDag):
        a_trigger(cleanup_dag_id="oders__cleanup").execute(a_context())


def test_it_is_skipped_with_the_reason_when_it_is_not_due_or_nothing_runs(house: House) -> None:
    driver = house.pipeline()
    house.checkpoint(driver)
    with pytest.raises(AirflowSkipException, match=r"not-due.*interval"):
        a_trigger().execute(a_context(run_id="again"))
    house.store.attempts.end(NAME, 1, AttemptStatus.FAILED, actor="tester")
    with pytest.raises(AirflowSkipException, match="no-attempt"):
        a_trigger(when_due=False).execute(a_context(run_id="later"))


def test_a_pipeline_that_is_not_there_is_declared_where_settings_are_given(house: House) -> None:
    with pytest.raises(AirflowFailException, match="There is no pipeline 'orders'"):
        a_trigger().execute(a_context())
    with pytest.raises(AirflowSkipException, match="none was ever started"):
        a_trigger(settings={"interval": "7m"}).execute(a_context())
    assert house.store.pipelines.get(NAME).settings.interval == timedelta(minutes=7)
    with pytest.raises(AirflowSkipException):
        a_trigger(settings={"keep_last": "4"}).execute(a_context())
    settings = house.store.pipelines.get(NAME).settings
    assert (settings.interval, settings.retention.last) == (timedelta(minutes=7), 4)


def test_the_interval_follows_what_is_advised(house: House) -> None:
    driver = house.pipeline()
    house.checkpoint(driver)
    bounds = timedelta(seconds=40), timedelta(seconds=50)
    with pytest.raises(AirflowSkipException):
        a_trigger(adapt=bounds).execute(a_context())
    assert bounds[0] <= house.store.pipelines.get(NAME).settings.interval <= bounds[1]


# waiting and completing


def acks(checkpoint: int | str, **given: Any) -> CheckpointAcksSensor:
    return CheckpointAcksSensor(task_id="acks", pipeline=NAME, checkpoint=checkpoint, **given)


def test_the_sensor_waits_in_the_triggerer_until_all_have_acknowledged(house: House) -> None:
    driver = house.pipeline()
    ref = house.in_flight(driver)
    with pytest.raises(TaskDeferred) as deferred:
        acks(ref.id).execute(a_context())
    path, arguments = deferred.value.trigger.serialize()
    assert path == "airflow_provider_ckpt.triggers.checkpoint.CheckpointTrigger"
    assert arguments == {"ckpt_conn_id": "ckpt_default", "pipeline": NAME, "checkpoint": ref.id, "until_ended": False}
    driver.acknowledge(ref, driver.participants[:1])
    assert not acks(ref.id, deferrable=False).poke(a_context()), "one of several has acknowledged"
    driver.acknowledge(ref, driver.participants[1:])
    acks(ref.id).resume(a_context(), {}, **(deferred.value.kwargs or {}))
    assert acks(ref.id, deferrable=False).poke(a_context())


def test_a_checkpoint_whose_time_is_over_fails_the_sensor_with_the_blame_report(house: House) -> None:
    settings = change_settings(SETTINGS, {"timeout": "1ms"})
    driver = house.pipeline(settings=settings)
    checkpoint = a_trigger(when_due=False).execute(a_context())
    with pytest.raises(AirflowFailException, match=r"has failed \(timed-out\)"):
        acks(checkpoint).execute(a_context())
    assert house.get(Ref(NAME, checkpoint)).phase is Phase.FAILED
    assert driver is not None


def test_a_completed_checkpoint_is_announced_to_the_outlets(house: House) -> None:
    driver = house.pipeline()
    ref = house.in_flight(driver)
    completing = CompleteCheckpointOperator(
        task_id="complete", pipeline=NAME, checkpoint=ref.id, outlets=[Asset("completed")]
    )
    with pytest.raises(AirflowException, match="not acknowledged"):
        completing.execute(a_context())
    driver.acknowledge(ref)
    context = a_context()
    assert completing.execute(context) == ref.id
    assert house.get(ref).phase is Phase.COMPLETED
    assert [each.extra for each in context["outlet_events"].values()] == [{"pipeline": NAME, "checkpoint": ref.id}]


def test_completing_waits_in_the_triggerer_while_sinks_publish(house: House) -> None:
    driver = house.pipeline(with_sink=True)
    ref = house.in_flight(driver)
    driver.acknowledge(ref)
    completing = CompleteCheckpointOperator(task_id="complete", pipeline=NAME, checkpoint=ref.id)
    with pytest.raises(TaskDeferred) as deferred:
        completing.execute(a_context())
    assert deferred.value.trigger.serialize()[1]["until_ended"]
    driver.commit(ref)
    assert completing.resume(a_context(), {}) == ref.id


def test_a_savepoint_is_waited_for(house: House) -> None:
    driver = house.pipeline()
    saving = SavepointOperator(task_id="save", pipeline=NAME, savepoint="before")
    with pytest.raises(TaskDeferred) as deferred:
        saving.execute(a_context())
    checkpoint = (deferred.value.kwargs or {})["checkpoint"]
    driver.capture(Ref(NAME, checkpoint))
    driver.acknowledge(Ref(NAME, checkpoint))
    assert saving.resume(a_context(), {}, checkpoint) == checkpoint
    assert house.get(Ref(NAME, checkpoint)).name == "before"


def test_cleanup_lets_go_and_verify_reads_what_is_left(house: House) -> None:
    driver = house.pipeline()
    refs = [house.checkpoint(driver) for _ in range(4)]
    cleaning = CleanupCheckpointsOperator(task_id="cleanup", pipeline=NAME, only_plan=True)
    assert cleaning.execute(a_context())["discarded"] == 2
    assert house.get(refs[0]).phase is Phase.COMPLETED
    done = CleanupCheckpointsOperator(task_id="cleanup", pipeline=NAME).execute(a_context())
    assert (done["kept"], done["discarded"]) == (2, 2)
    verifying = VerifyCheckpointOperator(task_id="verify", pipeline=NAME)
    assert verifying.execute(a_context()) == refs[-1].id
    manifest = next(house.folder.glob(f"{NAME}/checkpoints/{refs[-1].id}/manifest*"))
    manifest.write_bytes(b"{}")
    with pytest.raises(AirflowFailException, match="is damaged"):
        verifying.execute(a_context())


@pytest.mark.parametrize("wrong", ["{{ ti.xcom_pull() }}", "None", "-1", "1.5", "orders/3", ""])
def test_what_is_no_checkpoints_id_is_refused_with_a_sentence(house: House, wrong: str) -> None:
    house.pipeline()
    completing = CompleteCheckpointOperator(task_id="complete", pipeline=NAME, checkpoint=wrong)
    for task in (completing, acks(wrong)):
        with pytest.raises(AirflowFailException, match=f"is no id of a checkpoint of {NAME}: give the number"):
            task.execute(a_context())


# restoring


def decide(**given: Any) -> DecideRestoreOperator:
    return DecideRestoreOperator(task_id="decide", pipeline=NAME, **given)


def fail_attempt(house: House, number: int) -> None:
    assert house.store.attempts.end(NAME, number, AttemptStatus.FAILED, actor="tester", failure="it broke")


def test_nothing_is_restored_while_all_is_well_or_a_person_has_stopped_it(house: House) -> None:
    house.pipeline()
    with pytest.raises(AirflowSkipException, match="Attempt 1 is alive"):
        decide().execute(a_context())
    house.store.pipelines.desire(NAME, DesiredState.STOPPED, actor="me")
    fail_attempt(house, 1)
    with pytest.raises(AirflowSkipException, match="meant to be stopped"):
        decide().execute(a_context())


def test_a_failure_waits_for_the_restart_strategy_and_then_starts_from_the_newest_checkpoint(house: House) -> None:
    driver = house.pipeline(settings=change_settings(SETTINGS, {"restart": "fixed(3, 1h)"}))
    ref = house.checkpoint(driver)
    fail_attempt(house, 1)
    with pytest.raises(TaskDeferred):
        decide().execute(a_context())
    house.store.pipelines.change(NAME, lambda was: change_settings(was, {"restart": "fixed(3, 0s)"}), actor="me")
    plan = decide().execute(a_context())
    assert plan["start"].startswith(str(ref))
    assert not plan["is_lossy"]
    restoring = RestoreCheckpointOperator(task_id="restore", pipeline=NAME)
    assert restoring.execute(a_context()) == 2
    planned = house.store.attempts.get(NAME, 2)
    assert (planned.status, planned.rung, planned.restored_from) == (AttemptStatus.PLANNED, Rung.CHECKPOINT, ref.id)


def test_a_pipeline_that_fails_too_often_is_given_up_until_a_person_starts_it(house: House) -> None:
    driver = house.pipeline(settings=change_settings(SETTINGS, {"restart": "fixed(1, 0s)"}))
    house.checkpoint(driver)
    fail_attempt(house, 1)
    RestoreCheckpointOperator(task_id="restore", pipeline=NAME).execute(a_context())
    fail_attempt(house, 2)
    with pytest.raises(AirflowFailException, match="is given up: Attempt 2 has failed: it broke"):
        decide().execute(a_context())
    house.store.pipelines.desire(NAME, DesiredState.RUNNING, actor="me")
    assert decide().execute(a_context())["start"]


def test_a_person_restores_to_a_chosen_checkpoint_while_it_runs(house: House) -> None:
    driver = house.pipeline()
    refs = [house.checkpoint(driver) for _ in range(2)]
    chosen: dict[str, Any] = {"to": str(refs[0].id)}
    assert decide(**chosen).execute(a_context())["start"].startswith(str(refs[0]))
    house.store.pipelines.change(NAME, lambda was: change_settings(was, {"attempt_ttl": "1ms"}), actor="me")
    assert RestoreCheckpointOperator(task_id="restore", pipeline=NAME, **chosen).execute(a_context()) == 2
    assert house.store.attempts.get(NAME, 2).restored_from == refs[0].id
    with pytest.raises(AirflowFailException, match="There is no restorable checkpoint orders/77"):
        decide(to="77").execute(a_context())


@pytest.mark.parametrize(
    ("approve_restore", "is_lossy", "is_asked"),
    [("never", True, False), ("on_loss", False, False), ("on_loss", True, True), ("always", False, True)],
)
def test_a_person_is_asked_where_something_would_be_lost(
    approve_restore: str, is_lossy: bool, is_asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str | None] = []
    monkeypatch.setattr(ApprovalOperator, "execute", lambda self, context: asked.append(self.body))
    plan = {"start": "orders/3 (rolls back sink published/sink)", "checkpoint": None, "is_lossy": is_lossy}
    ApproveRestoreOperator(task_id="approve", pipeline=NAME, plan=plan, approve_restore=approve_restore).execute(
        a_context()
    )
    assert asked == (["It would start from orders/3 (rolls back sink published/sink)."] if is_asked else [])


@pytest.mark.parametrize("answer", ["Approve", "Reject"])
def test_what_a_person_is_asked_about_is_kept_until_it_is_restored_or_rejected(
    house: House, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = house.pipeline()
    ref = house.checkpoint(driver)
    house.checkpoint(driver)
    monkeypatch.setattr(ApprovalOperator, "execute", lambda self, context: None)
    monkeypatch.setattr(ApprovalOperator, "execute_complete", lambda self, context, event: None)
    plan = decide(to=str(ref.id)).execute(a_context())
    approve = ApproveRestoreOperator(task_id="approve", pipeline=NAME, plan=plan, approve_restore="always")
    for _ in range(2):  # the second is a retry
        approve.execute(a_context())
    assert [pin.ref for pin in house.store.pins.of(NAME)] == [ref]
    approve.execute_complete(a_context(), {"chosen_options": [answer]})
    assert [pin.ref for pin in house.store.pins.of(NAME)] == ([ref] if answer == "Approve" else [])
    if answer == "Approve":
        house.store.pipelines.change(NAME, lambda was: change_settings(was, {"attempt_ttl": "1ms"}), actor="me")
        RestoreCheckpointOperator(task_id="restore", pipeline=NAME, to=str(ref.id)).execute(a_context())
    assert house.store.pins.of(NAME) == []


def test_a_person_is_asked_about_a_checkpoint_whose_commit_is_not_finished(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in flight: it can not be pinned, and needs no pin."""
    driver = house.pipeline(with_sink=True, settings=change_settings(SETTINGS, {"restart": "fixed(3, 0s)"}))
    driver.process(1)
    ref = house.in_flight(driver)
    driver.acknowledge(ref)
    assert complete(house.context, ref).phase is Phase.COMMITTING
    fail_attempt(house, 1)
    asked: list[str | None] = []
    monkeypatch.setattr(ApprovalOperator, "execute", lambda self, context: asked.append(self.body))
    plan = decide().execute(a_context())
    assert plan["start"].startswith(str(ref))
    ApproveRestoreOperator(task_id="approve", pipeline=NAME, plan=plan, approve_restore="always").execute(a_context())
    assert len(asked) == 1
    assert house.store.pins.of(NAME) == []


def test_the_run_of_an_attempt_is_started_by_its_name() -> None:
    with pytest.raises(DagRunTriggerException) as started:
        StartRunOperator(task_id="start", run_dag_id="orders__run", attempt=3).execute(a_context())
    assert (started.value.dag_run_id, started.value.conf) == ("attempt-3", {"attempt": 3})
    assert started.value.skip_when_already_exists


def test_the_sweep_starts_a_restore_that_nobody_has_started(house: House) -> None:
    sweep = SweepPipelineOperator(task_id="sweep", pipeline=NAME, restore_dag_id="orders__restore")
    house.pipeline(settings=change_settings(SETTINGS, {"restart": "fixed(3, 0s)"}))
    with pytest.raises(AirflowSkipException, match="needs no restore"):
        sweep.execute(a_context(active={"orders__restore": 0}))
    fail_attempt(house, 1)
    with pytest.raises(AirflowSkipException, match="is at work"):
        sweep.execute(a_context(active={"orders__restore": 1}))
    with pytest.raises(DagRunTriggerException) as started:
        sweep.execute(a_context(active={"orders__restore": 0}))
    assert started.value.trigger_dag_id == "orders__restore"


# looking after


def test_people_are_told_once_of_a_problem_and_once_when_it_is_over(house: House) -> None:
    told: list[str] = []

    def watch(recovery_point: str) -> list[str]:
        task = WatchPipelineOperator(
            task_id="watch",
            pipeline=NAME,
            settings={"recovery_point": recovery_point},
            notifiers=[lambda context: told.append(f"{context['alert'].state} {context['alert']}")],  # type: ignore[list-item]
        )
        return task.execute(a_context())

    house.pipeline()
    problem = "the newest completed checkpoint may be 1ms old, and there is none"
    for _ in range(2):
        assert watch("1ms") == [problem]
    for _ in range(2):
        assert watch("1h") == []
    assert told == [f"new {NAME}: {problem}", f"over {NAME}, over: {problem}"]


def test_any_notifier_tells_of_a_dag_that_is_paused_by_mistake(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.pipeline()
    with a_webhook() as webhook, a_mailbox() as mailbox:
        smtp = {"conn_type": "smtp", "host": "localhost", "port": mailbox.port}
        smtp["extra"] = {"disable_ssl": True, "disable_tls": True, "from_email": "ckpt@example.org"}
        monkeypatch.setenv("AIRFLOW_CONN_SMTP_DEFAULT", json.dumps(smtp))
        monkeypatch.setenv("AIRFLOW_CONN_HOOK", json.dumps({"conn_type": "http", "host": webhook.url}))
        watch = WatchPipelineOperator(
            task_id="watch",
            pipeline=NAME,
            dag_ids=["orders__checkpoint", "orders__cleanup"],
            notifiers=[
                PipelineAlertNotifier(http_conn_id="hook", pipeline=NAME),
                SmtpNotifier(to="night@example.org", subject="{{ alert }}", html_content="{{ alert.text }}"),
            ],
        )
        dags = {"orders__checkpoint": 0, "orders__cleanup": 0}
        for _ in range(2):
            watch.execute(a_context(active=dags, paused=["orders__checkpoint"]))
        watch.execute(a_context(active=dags))
    sentence = "it is meant to run, and orders__checkpoint is paused in Airflow"
    assert [each["text"] for each in webhook.documents] == [f"{NAME}: {sentence}", f"{NAME}, over: {sentence}"]
    assert [each["Subject"] for each in mailbox.mails] == [f"{NAME}: {sentence}", f"{NAME}, over: {sentence}"]
    assert [(each["kind"], each["state"]) for each in webhook.documents] == [("paused", "new"), ("paused", "over")]


def test_sensors_say_what_a_pipeline_lacks(house: House) -> None:
    driver = house.pipeline()
    healthy = PipelineHealthySensor(task_id="healthy", pipeline=NAME, attempt=1)
    assert not healthy.poke(a_context())
    house.store.attempts.note_progress(NAME, 1, "driver")
    assert healthy.poke(a_context())
    assert not PipelineHealthySensor(task_id="healthy", pipeline=NAME, attempt=2).poke(a_context())
    fresh = CheckpointFreshSensor(task_id="fresh", pipeline=NAME, max_age=timedelta(hours=1))
    assert not fresh.poke(a_context())
    ref = house.checkpoint(driver)
    assert fresh.poke(a_context())
    assert not CheckpointFreshSensor(task_id="young", pipeline=NAME, max_age=timedelta(0)).poke(a_context())
    assert not CheckpointFreshSensor(task_id="fresh", pipeline=NAME, newer_than=str(ref.id)).poke(a_context())
    with pytest.raises(TaskDeferred):
        CheckpointFreshSensor(task_id="fresh", pipeline=NAME, newer_than=ref.id).execute(a_context())


def test_who_waits_for_an_attempt_by_its_number_hears_that_it_has_failed(house: House) -> None:
    """Else a restore Dag waits for the attempt that it has started, and nobody restores that one."""
    house.pipeline()
    house.store.attempts.end(NAME, 1, AttemptStatus.FAILED, actor="tester", failure="it broke")
    with pytest.raises(AirflowFailException, match="attempt 1 has failed: it broke"):
        healthy(attempt="1").execute(a_context())
    for patient in (healthy(), healthy(attempt=2)):
        with pytest.raises(TaskDeferred):
            patient.execute(a_context())


def test_who_waits_for_an_attempt_by_its_number_hears_that_it_is_silent(house: House) -> None:
    house.pipeline(settings=change_settings(SETTINGS, {"attempt_ttl": "1ms"}))
    time.sleep(0.01)
    with pytest.raises(AirflowFailException, match="attempt 1 has been silent"):
        healthy(attempt=1).execute(a_context())


def test_a_sensor_that_is_woken_again_and_again_gives_up_when_its_time_is_over(house: House) -> None:
    house.pipeline()
    with pytest.raises(TaskDeferred) as first:
        healthy(timeout=600).execute(a_context())
    with pytest.raises(TaskDeferred) as second:
        healthy(timeout=600).resume(a_context(), {}, **(first.value.kwargs or {}))
    assert second.value.kwargs == first.value.kwargs
    assert second.value.timeout < first.value.timeout <= timedelta(seconds=600)
    with pytest.raises(AirflowSensorTimeout, match="600 s"):
        healthy(timeout=600).resume(a_context(), {}, until=datetime.now(UTC).isoformat())


def healthy(**given: Any) -> PipelineHealthySensor:
    return PipelineHealthySensor(task_id="healthy", pipeline=NAME, **given)
