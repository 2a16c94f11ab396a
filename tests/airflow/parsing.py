"""Dag files in the test's own process."""

import runpy
from pathlib import Path

from airflow.sdk import DAG
from airflow.sdk.definitions._internal.contextmanager import DagContext


def dags_in(file: Path) -> list[DAG]:
    """As Airflow finds them: also those that no variable has."""
    DagContext.autoregistered_dags.clear()
    DagContext.current_autoregister_module_name = __name__
    try:
        runpy.run_path(str(file))
        return [dag for dag, _ in DagContext.autoregistered_dags]
    finally:
        DagContext.current_autoregister_module_name = None
        DagContext.autoregistered_dags.clear()
