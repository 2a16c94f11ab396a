"""Stands for the Dag that submits the pipeline: the driver runs beside the test."""

from airflow.sdk import DAG, task

with DAG("orders__run", schedule=None):

    @task
    def run() -> None:
        """The driver claims the attempt by itself."""

    run()
