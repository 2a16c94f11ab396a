"""Brings the pipeline back after a failure, or to where a person says.

Woken by an event of the store, by the sla Dag, or by hand:

    airflow dags trigger orders__restore --conf '{"to": 17}'
"""

from airflow.sdk import DAG, Asset, AssetWatcher, Param, TriggerRule
from orders import DAG_ARGUMENTS, PIPELINE, SOON, TASK

from airflow_provider_ckpt.operators.restore import (
    ApproveRestoreOperator,
    DecideRestoreOperator,
    RestoreCheckpointOperator,
    StartRunOperator,
)
from airflow_provider_ckpt.sensors.pipeline import PipelineHealthySensor
from airflow_provider_ckpt.triggers.events import ATTEMPT_FAILED, CkptEventTrigger

failed = Asset(
    "orders attempt failed",
    watchers=[
        AssetWatcher(
            name="orders store",
            trigger=CkptEventTrigger(ckpt_conn_id="ckpt_default", pipeline=PIPELINE, event=ATTEMPT_FAILED),
        )
    ],
)
params = {
    "to": Param(None, type=["null", "string", "integer"], title="A checkpoint's id or a savepoint's name"),
    "as_of": Param(None, type=["null", "string"], title="The newest checkpoint triggered by this time"),
    "accept_duplicates": Param(None, type=["null", "string"], title="Sinks that may see rows twice"),
}
where = {name: f"{{{{ params.{name} }}}}" for name in params}

with DAG("orders__restore", schedule=[failed], params=params, **DAG_ARGUMENTS):
    decide = DecideRestoreOperator(task_id="decide", retries=3, retry_delay=SOON, **where, **TASK)
    # Airflow may take an answer that comes within a second for a failure: then it asks again.
    approve = ApproveRestoreOperator(
        task_id="approve", pipeline=PIPELINE, plan=decide.output, retries=3, retry_delay=SOON
    )
    restore = RestoreCheckpointOperator(task_id="restore", retries=3, retry_delay=SOON, **where, **TASK)
    start = StartRunOperator(task_id="start", run_dag_id="orders__run", attempt=restore.output)
    wait = PipelineHealthySensor(
        task_id="wait",
        pipeline=PIPELINE,
        attempt=restore.output,
        timeout=600,
        retries=3,
        retry_delay=SOON,
        trigger_rule=TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS,  # a run that exists already is as good as a new one
    )
    decide >> approve >> restore >> start >> wait
    restore >> wait
