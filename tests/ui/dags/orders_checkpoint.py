"""Takes a checkpoint when it is asked to, and never by itself while the test runs."""

from datetime import timedelta

import pendulum
from airflow.sdk import DAG

from airflow_provider_ckpt.operators.trigger import TriggerCheckpointOperator

TOMORROW = pendulum.today("UTC").add(days=1)

with DAG("orders__checkpoint", schedule=timedelta(minutes=5), start_date=TOMORROW, catchup=False):
    TriggerCheckpointOperator(task_id="trigger", pipeline="orders", when_due=False)
