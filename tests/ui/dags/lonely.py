"""A Dag that looks after no pipeline."""

from airflow.sdk import DAG, task

with DAG("lonely", schedule=None):

    @task
    def nothing() -> None:
        """Nothing."""

    nothing()
