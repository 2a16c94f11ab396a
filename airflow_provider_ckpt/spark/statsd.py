"""Metrics of the driver, straight to a StatsD server: a datagram each, lost rather than waited for."""

import logging
from collections.abc import Iterable
from contextlib import closing
from typing import Protocol

from airflow_provider_ckpt.protocol.address import parse_address
from airflow_provider_ckpt.protocol.errors import Misused
from airflow_provider_ckpt.protocol.metrics import Metric, report

_log = logging.getLogger(__name__)


class Emit(Protocol):
    def __call__(self, metrics: Iterable[Metric]) -> None: ...


def nowhere(metrics: Iterable[Metric]) -> None:
    """Nobody wants them."""


def to_statsd(address: str) -> Emit:
    """:param address: host:port."""
    try:
        from statsd import StatsClient  # type: ignore[import-untyped] # noqa: PLC0415 - only who wants metrics needs it
    except ImportError as error:
        raise Misused("spark.ckpt.statsd needs the package statsd: install airflow-provider-ckpt[metrics].") from error
    host, port = parse_address("spark.ckpt.statsd", address)

    def emit(metrics: Iterable[Metric]) -> None:
        try:
            with closing(StatsClient(host, port)) as client:
                report(metrics, client)
        except OSError as error:  # nobody knows the host
            _log.warning("Metrics are lost: %s can not be reached: %s", address, error)

    return emit
