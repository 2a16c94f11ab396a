"""The Spark job that makes a checkpoint durable: few tasks with many files each, in a scheduler pool of their own."""

from collections.abc import Sequence

from pyspark.sql import SparkSession

from airflow_provider_ckpt.spark.persisting import Order, Share, persist

POOL = "ckpt"


def run_as_tasks(spark: SparkSession, order: Order, shares: Sequence[Share], tasks: int) -> list[str]:
    """Every share is acknowledged by the task that made it durable; says who was not accepted, and why."""
    context = spark.sparkContext
    context.setLocalProperty("spark.scheduler.pool", POOL)
    context.setJobGroup(f"ckpt-{order.ref}", f"checkpoint {order.ref}")
    count = max(1, min(tasks, len(shares)))
    heaviest_first = sorted(shares, key=lambda share: -len(share.new))
    groups = [heaviest_first[first::count] for first in range(count)]
    return context.parallelize(groups, count).flatMap(lambda group: list(persist(order, group))).collect()
