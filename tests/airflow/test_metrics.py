"""Metrics through Airflow's own reach an OpenTelemetry receiver as well; StatsD is in test_alerting."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric as Told

from airflow_provider_ckpt.protocol.metrics import Metric, MetricKind
from tests.behaviours.test_metrics import all_metrics
from tests.house import House
from tests.receivers import an_http_server

pytestmark = pytest.mark.slow
REPORTING = Path(__file__).parent / "programs" / "reporting.py"


def test_every_metric_reaches_an_opentelemetry_receiver_with_airflows_prefix(house: House) -> None:
    wanted = all_metrics(house)
    with a_collector() as collector:
        _report(wanted, collector.url)
    for each in wanted:
        told = collector.metrics[f"airflow.{each.name}"]
        assert _value(told, each.kind) == pytest.approx(each.value), each.name


@dataclass
class Collector:
    """Takes OTLP over HTTP."""

    url: str = ""
    metrics: dict[str, Told] = field(default_factory=dict)  # the newest of each name

    def hear(self, _: str | None, body: bytes) -> None:
        for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            for scope in resource.scope_metrics:
                self.metrics |= {metric.name: metric for metric in scope.metrics}


@contextmanager
def a_collector() -> Iterator[Collector]:
    collector = Collector()
    with an_http_server(collector.hear) as collector.url:
        yield collector


def _report(metrics: Sequence[Metric], url: str) -> None:
    otel = {"AIRFLOW__METRICS__OTEL_ON": "True", "OTEL_EXPORTER_OTLP_ENDPOINT": url}
    command = [sys.executable, str(REPORTING), json.dumps([asdict(each) for each in metrics])]
    subprocess.run(command, env={**os.environ, **otel}, check=True, timeout=120)


def _value(told: Told, kind: MetricKind) -> float:
    match kind:
        case MetricKind.COUNT:
            return float(told.sum.data_points[0].as_int)
        case MetricKind.GAUGE:
            (point,) = told.gauge.data_points
            return float(point.as_double or point.as_int)
        case MetricKind.TIME:
            return float(told.exponential_histogram.data_points[0].sum)
