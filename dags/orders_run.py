"""Runs the pipeline. Every execution is a new attempt, which fences whatever ran before."""

from airflow.sdk import DAG
from orders import APPLICATION, DAG_ARGUMENTS, SOON, SOURCE, TARGET, TASK

from airflow_provider_ckpt.operators.spark_submit import CheckpointedSparkSubmitOperator

# Two runs at once, so that a hung old one can not keep the next one from starting.
with DAG("orders__run", schedule=None, **{**DAG_ARGUMENTS, "max_active_runs": 2}):
    CheckpointedSparkSubmitOperator(
        task_id="run",
        application=APPLICATION,
        application_args=[SOURCE, TARGET],
        conn_id="spark_default",
        conf={"spark.scheduler.mode": "FAIR", "spark.sql.shuffle.partitions": "4", "spark.ui.enabled": "false"},
        attempt="{{ (dag_run.conf or {}).get('attempt', '') }}",
        retries=3,  # of a task that was killed, not by a person; a driver that fails is for the restore Dag
        retry_delay=SOON,
        **TASK,
    )
