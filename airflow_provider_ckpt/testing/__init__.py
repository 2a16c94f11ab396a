"""The public test kit: drive pipelines, sinks and crashes without Spark.

- `ScriptedPipeline` and `ScriptedSink`: a small, really stateful pipeline that is checkpointed and restored by the
  shipped code.
- `watch_store`, `watch_storage` with `CrashAt` and `FailEvery`: stop before or after the n-th call, or make calls fail.
- `ManualClock`: the store's clock in your hand.
"""

from airflow_provider_ckpt.testing.clock import ManualClock
from airflow_provider_ckpt.testing.faults import (
    Call,
    CrashAt,
    Crashed,
    FailEvery,
    Hook,
    Recorder,
    kill_this_process,
    watch_storage,
    watch_store,
)
from airflow_provider_ckpt.testing.scripted import ScriptedPipeline, ScriptedSink, truth

__all__ = [
    "Call",
    "CrashAt",
    "Crashed",
    "FailEvery",
    "Hook",
    "ManualClock",
    "Recorder",
    "ScriptedPipeline",
    "ScriptedSink",
    "kill_this_process",
    "truth",
    "watch_storage",
    "watch_store",
]
