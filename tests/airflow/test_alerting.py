"""What people must hear of reaches them, once and in time: real Airflow, real Spark, real receivers.

One Airflow goes through all of it: a Dag that is paused by mistake, checkpoints that fail, a driver that is killed, a
scheduler that is dead. The sla Dag looks every `LOOK`, the driver every `WATCH`; an alert may take twice as long.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_ckpt.metastore.schema import checkpoints
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.records import Checkpoint, Event
from airflow_provider_ckpt.testing.airflow import until
from airflow_provider_ckpt.testing.orders import Orders
from tests.airflow.stage import Stage
from tests.airflow.test_end_to_end import GATED
from tests.receivers import Listener, Mailbox, Webhook, a_listener, a_mailbox, a_webhook

pytestmark = [pytest.mark.slow, pytest.mark.spark]
DAGS = Path(__file__).parent / "dags_that_tell"
LOOK = timedelta(seconds=25)
WATCH = timedelta(seconds=20)
RECOVERY_POINT = timedelta(seconds=20)


@dataclass
class Night:
    """Those who are told: the webhook of Airflow's notifiers, that of the driver, a mailbox, and a StatsD server."""

    airflows: Webhook
    drivers: Webhook
    mailbox: Mailbox
    listener: Listener
    delays: dict[str, timedelta] = field(default_factory=dict)  # from when something went wrong until it was told

    def alerts(self) -> Counter[str]:
        return _alerts(self.airflows) + _alerts(self.drivers)

    def late(self, run: str) -> list[Any]:
        documents = self.airflows.documents
        return [each for each in documents if each["event"] == "checkpoint late" and each["run_id"] == run]


def test_each_situation_leads_to_the_right_alert_once_and_within_twice_the_period(
    tmp_path: Path,
    new_database: Callable[[str], str],
    empty_database: Callable[[str], str],
    orders: Orders,
    record_property: Callable[[str, object], None],
) -> None:
    with _a_night() as night:
        airflow = Stage(
            tmp_path / "airflow",
            DAGS,
            new_database("sqlite"),
            environment=_environment(night, tmp_path),
            database_url=empty_database("postgresql"),
        )
        with closing(airflow.store), airflow:
            airflow.until_running("orders", 1)
            airflow.until_completed("orders", 1)
            _a_dag_is_paused_by_mistake(airflow, night)
            _checkpoints_fail_and_a_late_run_is_told_of(airflow, night, tmp_path / "target" / "before-acks")
            _the_driver_is_killed_and_nobody_restores(airflow, night)
            _the_scheduler_is_dead(airflow, night)
            _everybody_heard_the_same(night)
            _metrics_arrived_with_airflows_prefix_and_from_the_driver(airflow, night.listener)
        for kind, took in night.delays.items():
            record_property(f"{kind} was told after", f"{took.total_seconds():.1f} s")


def _a_dag_is_paused_by_mistake(airflow: Stage, night: Night) -> None:
    began = datetime.now(UTC)
    airflow.pause("orders__restore", is_paused=True)
    _is_told_in_time(airflow, night, "paused", began, LOOK)


def _checkpoints_fail_and_a_late_run_is_told_of(airflow: Stage, night: Night, gate: Path) -> None:
    gate.touch()
    began = airflow.store.checkpoints.now()
    held = until(lambda: _held(airflow, began), "a checkpoint is held", airflow.say)
    assert held is not None
    run = held.trigger_key.split("/")[1]
    airflow.clear("orders__checkpoint", run)
    assert not night.late(run), "the test means a deadline that is still pending"
    until(lambda: night.late(run), "somebody hears that the run is late", airflow.say)
    assert airflow.state("orders__checkpoint", run) == "running"
    assert _held(airflow, began) == held, "the cleared run has found its checkpoint again"
    _its_time_is_over(airflow, held)
    until(lambda: airflow.state("orders__checkpoint", run) == "failed", "the run fails", airflow.say)
    failed = _event(airflow, "checkpoint.failed")
    _is_told_in_time(airflow, night, "failing", failed.at, LOOK)
    gate.unlink()
    _a_cleared_run_ends_well(airflow, run)
    _is_over(airflow, night, "failing")
    assert len(night.late(run)) == 1


def _its_time_is_over(airflow: Stage, held: Checkpoint) -> None:
    """Its ten minutes, at once; a shorter time-out might be over on a busy machine before the run is called late."""
    is_held = sa.and_(checkpoints.c.pipeline == held.ref.pipeline, checkpoints.c.id == held.ref.id)
    with airflow.store.engine.write() as tx:
        tx.connection.execute(sa.update(checkpoints).where(is_held).values(deadline=held.triggered_at))


def _a_cleared_run_ends_well(airflow: Stage, run: str) -> None:
    airflow.clear("orders__checkpoint", run)
    until(lambda: airflow.state("orders__checkpoint", run) == "success", "the cleared run ends well", airflow.say)
    assert airflow.tasks("orders__checkpoint", run)["complete"] == "success"


def _the_driver_is_killed_and_nobody_restores(airflow: Stage, night: Night) -> None:
    """The restore Dag is still paused."""
    began = datetime.now(UTC)
    assert len(airflow.kill_drivers()) == 1
    _is_told_in_time(airflow, night, "down", began, LOOK)
    airflow.pause("orders__restore", is_paused=False)
    airflow.until_running("orders", 2)
    _is_over(airflow, night, "down")
    _is_over(airflow, night, "paused")


def _the_scheduler_is_dead(airflow: Stage, night: Night) -> None:
    """Nobody starts checkpoints any more, nor the sla Dag: the driver itself sees it."""
    airflow.kill("scheduler")
    until(lambda: airflow.states("orders__sla", "watch")["running"] == 0, "the last look of the sla Dag", airflow.say)
    airflow.ckpt("pipelines", "orders", "--set", f"recovery_point={RECOVERY_POINT.total_seconds():.0f}s")
    until(lambda: _alerts(night.drivers)["stale new"], "the driver tells", airflow.say)
    wanted = _event(airflow, "pipeline.changed").at
    _is_told_in_time(airflow, night, "stale", max(wanted, _newest(airflow).triggered_at + RECOVERY_POINT), WATCH)


def _everybody_heard_the_same(night: Night) -> None:
    ended = Counter({"paused over": 1, "failing over": 1, "down over": 1})
    assert night.alerts() == ended + Counter({"paused new": 1, "failing new": 1, "down new": 1, "stale new": 1})
    mails = Counter(str(mail["Subject"]).replace("(", "").replace(")", "") for mail in night.mailbox.mails)
    mails.pop("a task has ended", None)
    assert mails == _alerts(night.airflows)
    assert mails["paused new"] == mails["down new"] == 1


def _metrics_arrived_with_airflows_prefix_and_from_the_driver(airflow: Stage, listener: Listener) -> None:
    heard = listener.so_far()
    names = {name for name, _ in heard}
    phases = ("completed", "duration", "cut", "persist", "commit", "new_bytes", "full_bytes", "acks", "age")
    wanted = {f"checkpoint.{each}" for each in (*phases, "failed", "failed.timed-out")}
    wanted |= {f"cleanup.{each}" for each in ("discarded", "deleted_files", "deleted_bytes")}
    wanted |= {"trigger.skipped", "trigger.skipped.no-attempt", "problems", "restored", "restored.tip"}
    assert {f"airflow.ckpt.orders.{each}" for each in wanted} <= names
    assert {f"ckpt.orders.driver.{each}" for each in ("checkpoints", "capture", "persist")} <= names
    completed = airflow.store.checkpoints.page("orders", limit=200, phases=frozenset({Phase.COMPLETED})).checkpoints
    durations = {f"{_took(each) / timedelta(milliseconds=1):.6f}|ms" for each in completed}
    told = {value for name, value in heard if name == "airflow.ckpt.orders.checkpoint.duration"}
    assert told <= durations


# what was heard


def _is_told_in_time(airflow: Stage, night: Night, kind: str, began: datetime, period: timedelta) -> None:
    until(lambda: night.alerts()[f"{kind} new"], f"{kind} is told", airflow.say)
    night.delays[kind] = took = _event(airflow, f"alert.{kind}.raised").at - began
    assert took <= 2 * period, f"{kind} took {took}\n{airflow.say()}"


def _is_over(airflow: Stage, night: Night, kind: str) -> None:
    until(lambda: night.alerts()[f"{kind} over"], f"{kind} is over", airflow.say)


def _alerts(webhook: Webhook) -> Counter[str]:
    return Counter(f"{each['kind']} {each['state']}" for each in webhook.documents if "kind" in each)


# what the store says


def _event(airflow: Stage, kind: str) -> Event:
    found = airflow.store.events.last("orders", kind)
    assert found is not None, f"{kind}\n{airflow.say()}"
    return found


def _held(airflow: Stage, since: datetime) -> Checkpoint | None:
    """One that had passed the gate before it was shut ends by itself: that is not meant."""
    flying = airflow.store.checkpoints.in_flight("orders")
    if flying is None or flying.phase is not Phase.IN_PROGRESS:
        return None
    is_long = airflow.store.checkpoints.now() - flying.triggered_at > timedelta(seconds=20)
    return flying if flying.triggered_at >= since or is_long else None


def _newest(airflow: Stage) -> Checkpoint:
    found = airflow.store.checkpoints.page("orders", limit=1, phases=frozenset({Phase.COMPLETED})).checkpoints
    return found[0]


def _took(checkpoint: Checkpoint) -> timedelta:
    assert checkpoint.ended_at is not None
    return checkpoint.ended_at - checkpoint.triggered_at


# the stage


@contextmanager
def _a_night() -> Iterator[Night]:
    with a_webhook() as airflows, a_webhook() as drivers, a_mailbox() as mailbox, a_listener() as listener:
        yield Night(airflows, drivers, mailbox, listener)


def _environment(night: Night, folder: Path) -> dict[str, str]:
    properties = folder / "driver.properties"
    properties.write_text(
        f"spark.ckpt.alert.webhook.secret={night.drivers.url}\n"
        f"spark.ckpt.alert.every={WATCH.total_seconds()}\n"
        f"spark.ckpt.statsd={night.listener.address}\n"
    )
    given = {
        "APPLICATION": str(GATED),
        "SOURCE": str(folder / "source"),
        "TARGET": str(folder / "target"),
        "LOOK_SECONDS": str(LOOK.total_seconds()),
        "PROPERTIES": str(properties),
    }
    return {**_airflows(night), **{f"ORDERS_{name}": value for name, value in given.items()}}


def _airflows(night: Night) -> dict[str, str]:
    smtp = {"conn_type": "smtp", "host": "localhost", "port": night.mailbox.port}
    host, _, port = night.listener.address.partition(":")
    return {
        "AIRFLOW_CONN_NIGHT": json.dumps({"conn_type": "http", "host": night.airflows.url}),
        "AIRFLOW_CONN_SMTP_DEFAULT": json.dumps({**smtp, "extra": {"disable_ssl": True, "disable_tls": True}}),
        "AIRFLOW__METRICS__STATSD_ON": "True",
        "AIRFLOW__METRICS__STATSD_HOST": host,
        "AIRFLOW__METRICS__STATSD_PORT": port,
    }
