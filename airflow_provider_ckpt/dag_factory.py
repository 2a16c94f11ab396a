"""The whole set of Dags for one pipeline, from one short declaration.

::

    from airflow_provider_ckpt import checkpoint_dags, every, keep

    checkpoint_dags(
        "orders",
        application="s3://code/orders.py",
        checkpoint=every(minutes=5),
        retention=keep(last=10, daily=7),
        recovery_point="15m",
    )

makes `orders__run`, `orders__checkpoint`, `orders__cleanup`, `orders__restore` and `orders__sla`. Unpause them all: the
sla Dag sees that the pipeline was never started, and starts it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pendulum
from airflow.sdk import DAG, Asset, AssetWatcher, BaseNotifier, Param, TriggerRule
from airflow.sdk.definitions.deadline import DeadlineAlert

from airflow_provider_ckpt.hooks.dags import LastWord, dag_id_of
from airflow_provider_ckpt.operators.base import DEFAULT_CONN_ID
from airflow_provider_ckpt.operators.cleanup import CleanupCheckpointsOperator
from airflow_provider_ckpt.operators.complete import CompleteCheckpointOperator
from airflow_provider_ckpt.operators.restore import (
    ApproveRestoreOperator,
    DecideRestoreOperator,
    RestoreCheckpointOperator,
    StartRunOperator,
)
from airflow_provider_ckpt.operators.sla import SweepPipelineOperator, WatchPipelineOperator
from airflow_provider_ckpt.operators.spark_submit import CheckpointedSparkSubmitOperator
from airflow_provider_ckpt.operators.trigger import TriggerCheckpointOperator
from airflow_provider_ckpt.protocol.duration import format_duration
from airflow_provider_ckpt.protocol.errors import Misused
from airflow_provider_ckpt.protocol.paths import check_name
from airflow_provider_ckpt.protocol.settings import Settings, change_settings
from airflow_provider_ckpt.sensors.acks import CheckpointAcksSensor
from airflow_provider_ckpt.sensors.pipeline import PipelineHealthySensor
from airflow_provider_ckpt.triggers.events import ATTEMPT_FAILED, CkptEventTrigger

APPROVALS = ("never", "on_loss", "always")
_AUTO_BOUNDS = (timedelta(seconds=30), timedelta(hours=1))
_BEGIN = pendulum.datetime(2024, 1, 1, tz="UTC")
_SOON = timedelta(seconds=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Every:
    """How often: a fixed pause, or, with bounds, whatever the pipeline's own history advises."""

    pause: timedelta
    bounds: tuple[timedelta, timedelta] | None = None

    @property
    def interval(self) -> timedelta:
        """What must have passed at least: a run that starts late must not make the next one, on time, too early."""
        return self.pause / 2


def every(
    auto: str | None = None,
    *,
    least: timedelta = _AUTO_BOUNDS[0],
    most: timedelta = _AUTO_BOUNDS[1],
    **units: float,
) -> Every:
    """`every(minutes=5)`; or `every("auto", least=…, most=…)`, which looks often and follows the advised interval."""
    if auto is not None:
        if auto != "auto" or units or not timedelta(0) < least <= most:
            raise Misused(
                "Write every('auto'), every('auto', least=timedelta(…), most=timedelta(…)) or every(minutes=5)."
            )
        return Every(pause=min(least, timedelta(minutes=1)), bounds=(least, most))
    try:
        pause = timedelta(**units)
    except TypeError as error:
        raise Misused(f"every(…) takes what timedelta takes, such as minutes=5: {error}.") from error
    if pause <= timedelta(0):
        raise Misused("every(…) needs a time above zero, such as minutes=5.")
    return Every(pause=pause)


def keep(
    *,
    last: int | None = None,
    hourly: int | None = None,
    daily: int | None = None,
    weekly: int | None = None,
    bytes: int | None = None,  # noqa: A002 - what it is called in `ckpt pipelines --set keep_bytes=`
    age: str | None = None,
) -> dict[str, str]:
    """What retention keeps, as settings: `keep(last=10, daily=7)`."""
    given = {"last": last, "hourly": hourly, "daily": daily, "weekly": weekly, "bytes": bytes, "age": age}
    return {f"keep_{name}": str(value) for name, value in given.items() if value is not None}


def checkpoint_dags(  # noqa: PLR0913 - one declaration, all of it optional but two
    pipeline: str,
    *,
    application: str,
    spark_conn_id: str = "spark_default",
    conn_id: str = DEFAULT_CONN_ID,
    checkpoint: Every | None = None,
    cleanup: Every | None = None,
    look: Every | None = None,
    retention: Mapping[str, str] | None = None,
    recovery_point: str | None = None,
    restart: str = "exponential(5 in 1h)",
    settings: Mapping[str, str] | None = None,
    approve_restore: str = "on_loss",
    notify: Sequence[BaseNotifier] = (),
    deadline: DeadlineAlert | None = None,
    submit: Mapping[str, Any] | None = None,
    access_control: Mapping[str, Any] | None = None,
    tags: Collection[str] = (),
) -> dict[str, DAG]:
    """Make the Dags of a pipeline; bad values are refused when the file is parsed.

    :param pipeline: its name, in the store and at the front of every Dag id.
    :param application: the program to submit, as SparkSubmitOperator takes it.
    :param spark_conn_id: the connection to Spark.
    :param conn_id: the connection to the metastore and the storage.
    :param checkpoint: how often; every 5 minutes when not given.
    :param cleanup: how often; every hour when not given.
    :param look: how often the sla Dag looks; every minute when not given.
    :param retention: what is kept, by `keep(…)`.
    :param recovery_point: how old the newest completed checkpoint may be, as "15m".
    :param restart: the restart strategy.
    :param settings: any other setting of the pipeline, as `ckpt pipelines NAME --set` takes it.
    :param approve_restore: when a person is asked before a restore: `never`, `on_loss` or `always`.
    :param notify: notifiers that hear of failed checkpoints, restores and alerts.
    :param deadline: Airflow's, for every run of the checkpoint Dag.
    :param submit: more arguments for the `CheckpointedSparkSubmitOperator`.
    :param access_control: Airflow's, for all Dags.
    :param tags: Airflow's, besides the pipeline's name.
    :return: the Dags by their last word: run, checkpoint, cleanup, restore, sla.
    """
    for what, given in (("checkpoint", checkpoint), ("cleanup", cleanup), ("look", look)):
        _check(what, given, Every, "every(minutes=5)")
    _check("application", application, str, '"orders.py"')
    _check("retention", retention, Mapping, "keep(last=10)")
    _check("notify", notify, list | tuple, "[SlackNotifier(…)]")
    _check("deadline", deadline, DeadlineAlert, "DeadlineAlert(…)")
    checkpoint = checkpoint or every(minutes=5)
    texts = {"interval": format_duration(checkpoint.interval), "restart": restart}
    if recovery_point is not None:
        texts["recovery_point"] = recovery_point
    texts |= {**(retention or {}), **(settings or {})}
    change_settings(Settings(), texts)  # refused here, not at three in the morning
    declared = _Declaration(
        pipeline=check_name("pipeline", pipeline),
        conn_id=conn_id,
        settings=texts,
        checkpoint=checkpoint,
        cleanup=cleanup or every(hours=1),
        look=look or every(minutes=1),
        notify=tuple(notify),
        common={
            "access_control": access_control,
            "tags": {"ckpt", pipeline, *tags},
            "catchup": False,
            "start_date": _BEGIN,
            "is_paused_upon_creation": None,
        },
    )
    if approve_restore not in APPROVALS:
        raise Misused(f"approve_restore is one of {', '.join(APPROVALS)}, not {approve_restore!r}.")
    return {
        "run": _run(declared, application, spark_conn_id, submit or {}),
        "checkpoint": _checkpoint(declared, deadline),
        "cleanup": _cleanup(declared),
        "restore": _restore(declared, approve_restore),
        "sla": _sla(declared),
    }


def _check(what: str, given: object, kind: Any, example: str) -> None:
    if given is None and what != "application":
        return
    if not isinstance(given, kind):
        raise Misused(f"{what} is {given!r:.40}: write {what}={example}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Declaration:
    """What all Dags of a pipeline share."""

    pipeline: str
    conn_id: str
    checkpoint: Every
    cleanup: Every
    look: Every
    settings: Mapping[str, str]
    notify: tuple[BaseNotifier, ...]
    common: Mapping[str, Any]

    def dag_id(self, last_word: str) -> str:
        return dag_id_of(self.pipeline, LastWord(last_word))

    def dag(self, last_word: str, **given: Any) -> DAG:
        return DAG(self.dag_id(last_word), **{"max_active_runs": 1, **self.common, **given})

    @property
    def sensor(self) -> dict[str, Any]:
        """The arguments of every sensor."""
        return {"pipeline": self.pipeline, "ckpt_conn_id": self.conn_id}

    @property
    def task(self) -> dict[str, Any]:
        """The arguments of every operator: whichever comes first declares the pipeline."""
        return {**self.sensor, "settings": self.settings}


def _run(
    declared: _Declaration,
    application: str,
    spark_conn_id: str,
    submit: Mapping[str, Any],
) -> DAG:
    """Two runs at once, so that a hung old one can not keep the next one from starting."""
    with declared.dag("run", schedule=None, max_active_runs=2) as dag:
        CheckpointedSparkSubmitOperator(
            task_id="run",
            application=application,
            conn_id=spark_conn_id,
            attempt="{{ (dag_run.conf or {}).get('attempt', '') }}",
            retries=3,  # only a task that was killed, not by a person, is tried again: a failed driver is not
            retry_delay=_SOON,
            **declared.task,
            **submit,
        )
    return dag


def _checkpoint(declared: _Declaration, deadline: DeadlineAlert | None) -> DAG:
    completed = Asset(f"{declared.pipeline} checkpoint completed")
    with declared.dag("checkpoint", schedule=declared.checkpoint.pause, deadline=deadline) as dag:
        trigger = TriggerCheckpointOperator(
            task_id="trigger",
            cleanup_dag_id=declared.dag_id("cleanup"),
            adapt=declared.checkpoint.bounds,
            retries=2,
            retry_delay=_SOON,
            **declared.task,
        )
        acks = CheckpointAcksSensor(
            task_id="acks",
            checkpoint=trigger.output,
            retries=3,
            retry_delay=_SOON,
            on_failure_callback=list(declared.notify),
            **declared.sensor,
        )
        complete = CompleteCheckpointOperator(
            task_id="complete",
            checkpoint=trigger.output,
            outlets=[completed],
            retries=3,
            retry_delay=_SOON,
            on_failure_callback=list(declared.notify),
            **declared.task,
        )
        trigger >> acks >> complete
    return dag


def _cleanup(declared: _Declaration) -> DAG:
    with declared.dag("cleanup", schedule=declared.cleanup.pause) as dag:
        CleanupCheckpointsOperator(task_id="cleanup", retries=3, retry_delay=_SOON, **declared.task)
    return dag


def _restore(declared: _Declaration, approve_restore: str) -> DAG:
    """Woken by an event, by the sla Dag, or by a person, who may name where to start from."""
    watcher = AssetWatcher(
        name=f"{declared.pipeline} store",
        trigger=CkptEventTrigger(ckpt_conn_id=declared.conn_id, pipeline=declared.pipeline, event=ATTEMPT_FAILED),
    )
    failed = Asset(f"{declared.pipeline} attempt failed", watchers=[watcher])
    params = {
        "to": Param(None, type=["null", "string", "integer"], title="A checkpoint's id or a savepoint's name"),
        "as_of": Param(None, type=["null", "string"], title="The newest checkpoint triggered by this time"),
        "accept_duplicates": Param(None, type=["null", "string"], title="Sinks that may see rows twice"),
    }
    where: dict[str, Any] = {name: f"{{{{ params.{name} }}}}" for name in params}
    with declared.dag("restore", schedule=[failed], params=params) as dag:
        decide = DecideRestoreOperator(
            task_id="decide",
            retries=3,
            retry_delay=_SOON,
            on_failure_callback=list(declared.notify),
            **where,
            **declared.task,
        )
        approve = ApproveRestoreOperator(
            task_id="approve",
            pipeline=declared.pipeline,
            plan=decide.output,
            approve_restore=approve_restore,
            ckpt_conn_id=declared.conn_id,
            retries=3,  # Airflow may take an answer that comes within a second for a failure: then it asks again
            retry_delay=_SOON,
        )
        restore = RestoreCheckpointOperator(
            task_id="restore",
            retries=3,
            retry_delay=_SOON,
            on_failure_callback=list(declared.notify),
            **where,
            **declared.task,
        )
        start = StartRunOperator(task_id="start", run_dag_id=declared.dag_id("run"), attempt=restore.output)
        wait = PipelineHealthySensor(
            task_id="wait",
            attempt=restore.output,
            trigger_rule=TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS,  # a run that exists already is as good
            timeout=600,
            retries=3,
            retry_delay=_SOON,
            on_success_callback=list(declared.notify),
            on_failure_callback=list(declared.notify),
            **declared.sensor,
        )
        decide >> approve >> restore >> start >> wait
        restore >> wait
    return dag


def _sla(declared: _Declaration) -> DAG:
    with declared.dag("sla", schedule=declared.look.pause) as dag:
        WatchPipelineOperator(
            task_id="watch",
            dag_ids=[declared.dag_id(word) for word in ("run", "checkpoint", "cleanup", "restore")],
            notifiers=list(declared.notify),
            retries=2,
            retry_delay=_SOON,
            **declared.task,
        )
        SweepPipelineOperator(
            task_id="sweep", restore_dag_id=declared.dag_id("restore"), retries=2, retry_delay=_SOON, **declared.task
        )
    return dag
