"""From a restore to the run that it has started."""

from typing import Any
from urllib.parse import quote

from airflow.sdk import BaseOperatorLink, conf


class RunLink(BaseOperatorLink):
    """Opens the run of the Dag that runs the pipeline, for the attempt that was planned."""

    name = "Run of the attempt"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        base = conf.get("api", "base_url", fallback="/").rstrip("/")
        return f"{base}/dags/{quote(operator.run_dag_id)}/runs/{quote(f'attempt-{operator.attempt}')}"
