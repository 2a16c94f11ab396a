"""Looks after the pipeline: tells when it breaks its objectives, and starts a restore that is due and did not run."""

from airflow.sdk import DAG
from orders import DAG_ARGUMENTS, LOOK_EVERY, SOON, TASK

from airflow_provider_ckpt.operators.sla import SweepPipelineOperator, WatchPipelineOperator

OTHERS = [f"orders__{word}" for word in ("run", "checkpoint", "cleanup", "restore")]

with DAG("orders__sla", schedule=LOOK_EVERY, **DAG_ARGUMENTS):
    WatchPipelineOperator(task_id="watch", dag_ids=OTHERS, retries=2, retry_delay=SOON, **TASK)
    SweepPipelineOperator(task_id="sweep", restore_dag_id="orders__restore", retries=2, retry_delay=SOON, **TASK)
