"""Takes a checkpoint: trigger it unless there is a reason not to, wait for everybody, complete it."""

from airflow.sdk import DAG, Asset
from orders import DAG_ARGUMENTS, EVERY, PIPELINE, SOON, TASK

from airflow_provider_ckpt.operators.complete import CompleteCheckpointOperator
from airflow_provider_ckpt.operators.trigger import TriggerCheckpointOperator
from airflow_provider_ckpt.sensors.acks import CheckpointAcksSensor

with DAG("orders__checkpoint", schedule=EVERY, **DAG_ARGUMENTS):
    trigger = TriggerCheckpointOperator(
        task_id="trigger", cleanup_dag_id="orders__cleanup", retries=2, retry_delay=SOON, **TASK
    )
    acks = CheckpointAcksSensor(
        task_id="acks", pipeline=PIPELINE, checkpoint=trigger.output, retries=3, retry_delay=SOON
    )
    complete = CompleteCheckpointOperator(
        task_id="complete",
        checkpoint=trigger.output,
        outlets=[Asset("orders checkpoint completed")],
        retries=3,
        retry_delay=SOON,
        **TASK,
    )
    trigger >> acks >> complete
