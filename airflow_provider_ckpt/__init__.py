"""Orchestrated checkpoints for PySpark pipelines on Apache Airflow.

A Dag file declares a pipeline with `checkpoint_dags`; a Spark program attaches with `spark.CheckpointAgent`.
"""

from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.version import __version__

if TYPE_CHECKING:
    from airflow_provider_ckpt.dag_factory import checkpoint_dags, every, keep

__all__ = ["__version__", "checkpoint_dags", "every", "get_provider_info", "keep"]


def get_provider_info() -> dict[str, Any]:
    from airflow_provider_ckpt import provider_info  # noqa: PLC0415 - importing the package imports nothing heavy

    return provider_info.get_provider_info()


def __getattr__(name: str) -> Any:
    """The Dag factory needs Airflow, which a Spark environment does not have: it is imported when asked for."""
    if name in ("checkpoint_dags", "every", "keep"):
        from airflow_provider_ckpt import dag_factory  # noqa: PLC0415

        return getattr(dag_factory, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
