"""Lets go what retention does not keep. No checkpoint is triggered meanwhile, and none waits for long."""

from airflow.sdk import DAG
from orders import CLEANUP_EVERY, DAG_ARGUMENTS, SOON, TASK

from airflow_provider_ckpt.operators.cleanup import CleanupCheckpointsOperator

with DAG("orders__cleanup", schedule=CLEANUP_EVERY, **DAG_ARGUMENTS):
    CleanupCheckpointsOperator(task_id="cleanup", retries=3, retry_delay=SOON, **TASK)
