"""Metrics through Airflow's own: StatsD, OpenTelemetry or Datadog, as Airflow is set up."""

from collections.abc import Iterable

from airflow.sdk.observability import stats

from airflow_provider_ckpt.protocol.metrics import Metric, report


def emit(metrics: Iterable[Metric]) -> None:
    report(metrics, stats)
