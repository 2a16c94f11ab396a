"""Reports metrics as a task does: set up as Airflow's task runner does it, and flushed when the process ends."""

import json
import sys

from airflow.sdk.configuration import conf
from airflow.sdk.observability import stats
from airflow.sdk.observability.metrics.stats_utils import get_stats_factory

from airflow_provider_ckpt.hooks.stats import emit
from airflow_provider_ckpt.protocol.metrics import Metric, MetricKind


def main(documents: str) -> None:
    stats.initialize(factory=get_stats_factory(), export_legacy_names=conf.getboolean("metrics", "legacy_names_on"))
    emit(Metric(**{**each, "kind": MetricKind(each["kind"])}) for each in json.loads(documents))


if __name__ == "__main__":
    main(sys.argv[1])
