"""What runs inside a Spark application: the only band that may import pyspark.

`CheckpointAgent` is loaded when it is asked for: executors and the command line use their parts without pyspark.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_provider_ckpt.spark.agent import CheckpointAgent

__all__ = ["CheckpointAgent"]


def __getattr__(name: str) -> Any:
    if name == "CheckpointAgent":
        from airflow_provider_ckpt.spark.agent import CheckpointAgent  # noqa: PLC0415

        return CheckpointAgent
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
