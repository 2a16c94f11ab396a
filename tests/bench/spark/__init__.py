"""Benchmarks with real Spark, each in a driver process of its own, on a local disk and on S3 (moto, a process too)."""

from functools import partial

from tests.bench.spark.launching import launch

THROUGHPUT = partial(launch, "throughput")
COPIES = partial(launch, "copies")
PARTITIONS = partial(launch, "partitions")
SINKS = partial(launch, "sinks")
