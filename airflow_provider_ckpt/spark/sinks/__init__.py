"""Sinks that publish exactly once: staged batch by batch, published with the checkpoint, guarded in the target itself.

Each is loaded when it is asked for, with the library that it is about and none of the others.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_provider_ckpt.spark.sinks.base import Name, Publication, Sink, Slot, Staged
    from airflow_provider_ckpt.spark.sinks.delta import DeltaSink
    from airflow_provider_ckpt.spark.sinks.files import FilesSink
    from airflow_provider_ckpt.spark.sinks.iceberg import IcebergSink
    from airflow_provider_ckpt.spark.sinks.postgres import PostgresSink

__all__ = [
    "DeltaSink",
    "FilesSink",
    "IcebergSink",
    "Name",
    "PostgresSink",
    "Publication",
    "Sink",
    "Slot",
    "Staged",
]

_HOMES = {"DeltaSink": "delta", "FilesSink": "files", "IcebergSink": "iceberg", "PostgresSink": "postgres"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'base')}"), name)
