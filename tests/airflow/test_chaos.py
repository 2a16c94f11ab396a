"""Airflow's own processes die, its tasks are reset, its events get lost: nothing is done twice, nothing is stuck."""

import re
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest
import sqlalchemy as sa

from airflow_provider_ckpt.coordinator.declaring import declare
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.records import AttemptStatus, Checkpoint
from airflow_provider_ckpt.testing.airflow import until
from airflow_provider_ckpt.testing.orders import Orders
from tests.airflow.stage import Stage
from tests.airflow.test_end_to_end import (
    environment_of,
    everything_is_published_once,
    is_any_restore_active,
    only_dags_of,
)
from tests.harness import campaign

pytestmark = [pytest.mark.slow, pytest.mark.spark]
NOTICES_EARLY = {  # most of this test is waiting until Airflow notices that something of it is dead
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "5",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "15",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "15",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "5",
    "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "15",
}


@pytest.mark.campaign
def test_whatever_dies_in_airflow_nothing_is_done_twice_and_nothing_is_stuck(
    tmp_path: Path, new_database: Callable[[str], str], empty_database: Callable[[str], str], orders: Orders
) -> None:
    airflow = Stage(
        tmp_path / "airflow",
        only_dags_of("orders", tmp_path),
        new_database("sqlite"),
        environment={**environment_of("orders", tmp_path), "ORDERS_CHECKPOINT_SECONDS": "7.5", **NOTICES_EARLY},
        database_url=_that_ends_idle_transactions(empty_database("postgresql")),
    )
    with closing(airflow.store), airflow:
        airflow.until_running("orders", 1)
        airflow.until_completed("orders", 1)
        for happen in campaign.share(MISHAPS, of=2):
            happen(airflow)
        everything_is_published_once(airflow, orders, tmp_path / "target" / "published")
        _no_checkpoint_was_triggered_twice(airflow)
        _the_stores_url_is_nowhere(airflow)


def _that_ends_idle_transactions(url: str) -> str:
    """As docs/airflow.md tells people to: workers of a killed scheduler keep its connections, and their locks, open."""
    parsed = sa.make_url(url)
    engine = sa.create_engine(parsed.set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f"ALTER DATABASE {parsed.database} SET idle_in_transaction_session_timeout = '10s'")
    engine.dispose()
    return url


def _the_triggerer_dies_while_a_sensor_waits(airflow: Stage) -> None:
    gate = airflow.folder.parent / "target" / "before-acks"
    gate.touch()
    flying = until(lambda: _waited_for(airflow), "a sensor waits", airflow.say)
    assert flying is not None
    airflow.kill("triggerer")
    gate.unlink()
    until(lambda: airflow.store.checkpoints.get(flying.ref).phase is Phase.COMPLETED, "the driver completes it")
    airflow.start("triggerer")
    until(lambda: airflow.states("orders__checkpoint", "acks")["deferred"] == 0, "the sensor goes on", airflow.say)
    airflow.until_completed("orders", 1)


def _a_cleanup_that_hangs_puts_checkpoints_off_for_a_while_only(airflow: Stage) -> None:
    """A run of a paused Dag stays queued for ever."""
    declare(airflow.store, "orders", {"max_deferral": "10s"}, actor="tester")
    airflow.pause("orders__cleanup", is_paused=True)
    airflow.trigger("orders__cleanup")
    since = airflow.store.events.position("orders")

    def reasons() -> list[str]:
        return [each.reason for each in airflow.store.events.since({"orders": since}, frozenset({"trigger.skipped"}))]

    until(lambda: any("cleanup-run-active" in each for each in reasons()), "a checkpoint is put off", airflow.say)
    assert "cleanup Dag run(s) are queued or running" in airflow.ckpt("show", "orders")
    airflow.until_completed("orders", 1)
    said = airflow.logs("orders__checkpoint", "trigger")
    assert "cleanup Dag run(s) are queued or running" in said
    airflow.pause("orders__cleanup", is_paused=False)


def _the_task_dies_and_its_driver_lives_on(airflow: Stage) -> None:
    attempt = _current(airflow)
    airflow.kill_task()
    airflow.until_running("orders", attempt + 1)
    _one_driver_is_left(airflow)


def _the_scheduler_dies_and_resets_a_healthy_task(airflow: Stage) -> None:
    """Airflow starts a second driver by itself: a new attempt, and the old one is gone within its time to live."""
    attempt = _current(airflow)
    airflow.kill("scheduler")
    airflow.start("scheduler")
    airflow.until_running("orders", attempt + 1)
    _one_driver_is_left(airflow)
    airflow.until_completed("orders", 1)


def _three_failure_events_at_once_while_the_restore_dag_is_paused(airflow: Stage) -> None:
    attempt = _current(airflow)
    airflow.pause("orders__restore", is_paused=True)
    airflow.kill_drivers()
    until(lambda: _status(airflow) is AttemptStatus.FAILED, "the failure is noticed", airflow.say)
    with airflow.store.engine.write() as tx:
        for reporter in ("its task", "the sla Dag"):  # with the driver's own: three events at once
            tx.record("attempt.failed", "orders", attempt=attempt, actor=reporter)
    for _ in range(3):
        airflow.trigger("orders__restore")
    airflow.pause("orders__restore", is_paused=False)
    airflow.until_running("orders", attempt + 1)
    until(lambda: not is_any_restore_active(airflow, "orders"), "every restore has ended", airflow.say)
    assert _current(airflow) == attempt + 1, airflow.say()


def _a_person_restores_to_a_chosen_checkpoint(airflow: Stage) -> None:
    """An older one than the table has: it is rolled back, and a person is asked before that."""
    airflow.until_completed("orders", 2)
    attempt = _current(airflow)
    completed = airflow.store.checkpoints.page("orders", limit=2, phases=frozenset({Phase.COMPLETED})).checkpoints
    chosen = min(each.ref.id for each in completed)
    run = airflow.trigger("orders__restore", {"to": chosen})
    until(
        lambda: airflow.tasks("orders__restore", run).get("approve") == "awaiting_input",
        "a person is asked",
        airflow.say,
    )
    assert _current(airflow) == attempt
    assert "rolls back sink published/sink" in airflow.asked("orders__restore", run, "approve")
    until(lambda: _is_approved(airflow, run), "the person's answer counts", airflow.say)
    airflow.until_running("orders", attempt + 1)
    assert airflow.store.attempts.get("orders", attempt + 1).restored_from == chosen
    until(
        lambda: airflow.tasks("orders__restore", run).get("wait") == "success", "the restore Dag is done", airflow.say
    )
    _one_driver_is_left(airflow)


MISHAPS = (  # every other one in the gate, all of them in two days
    _the_triggerer_dies_while_a_sensor_waits,
    _a_cleanup_that_hangs_puts_checkpoints_off_for_a_while_only,
    _the_task_dies_and_its_driver_lives_on,
    _the_scheduler_dies_and_resets_a_healthy_task,
    _three_failure_events_at_once_while_the_restore_dag_is_paused,
    _a_person_restores_to_a_chosen_checkpoint,
)


def _is_approved(airflow: Stage, run: str) -> bool:
    """A person reads first, and answers as often as they are asked: Airflow may take an answer for a failure."""
    state = airflow.tasks("orders__restore", run).get("approve")
    if state == "awaiting_input":
        time.sleep(3.0)
        with suppress(RuntimeError):  # it was answered, and Airflow has not seen to it yet
            airflow.answer("orders__restore", run, "approve", "Approve")
    return state == "success"


def _waited_for(airflow: Stage) -> Checkpoint | None:
    flying = airflow.store.checkpoints.in_flight("orders")
    return flying if airflow.states("orders__checkpoint", "acks")["deferred"] == 1 else None


def _current(airflow: Stage) -> int:
    current = airflow.attempt("orders")
    assert current is not None
    return current.number


def _status(airflow: Stage) -> AttemptStatus:
    return airflow.store.attempts.get("orders", _current(airflow)).status


def _one_driver_is_left(airflow: Stage) -> None:
    until(lambda: len(airflow.drivers()) == 1, "the old driver is gone", airflow.say, patience=60)


def _no_checkpoint_was_triggered_twice(airflow: Stage) -> None:
    page = airflow.store.checkpoints.page("orders", limit=200).checkpoints
    keys = [each.trigger_key for each in page if each.retry_of is None]
    assert len(keys) == len(set(keys))
    assert not [each for each in page if each.is_in_flight and each.attempt != _current(airflow)]


def _the_stores_url_is_nowhere(airflow: Stage) -> None:
    """In no log, no XCom, no rendered field; the path of SQLite's file is the secret here."""
    secret = re.escape(airflow.metastore_url)
    logs = "\n".join(file.read_text(errors="replace") for file in (airflow.folder / "logs").rglob("*.log*"))
    assert "Attempt" in logs
    assert not re.search(secret, logs)
