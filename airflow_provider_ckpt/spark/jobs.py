"""The Spark job that makes a checkpoint durable: few tasks with many files each, in a scheduler pool of their own."""

from collections.abc import Sequence

from pyspark.sql import SparkSession

from airflow_provider_ckpt.spark.persisting import Order, Share, persist

POOL = "ckpt"
_WORTH_A_TASK = 64 * 2**20  # bytes, by weight: a task more costs about as much as moving these


def run_as_tasks(spark: SparkSession, order: Order, shares: Sequence[Share], tasks: int) -> None:
    """Every share is acknowledged by the task that made it durable."""
    context = spark.sparkContext
    context.setLocalProperty("spark.scheduler.pool", POOL)
    context.setJobGroup(f"ckpt-{order.ref}", f"checkpoint {order.ref}")
    groups = divide(shares, tasks)
    done = context.parallelize(groups, len(groups)).map(lambda group: persist(order, group))
    done._jrdd.count()  # noqa: SLF001 - `collect` and its like would open a socket for what nobody wants to know


def divide(shares: Sequence[Share], tasks: int) -> list[Sequence[Share]]:
    """As many groups as it is worth, at most `tasks`, about equally heavy."""
    worth = 1 + sum(share.weight for share in shares) // _WORTH_A_TASK
    count = max(1, min(tasks, len(shares), worth))
    heaviest_first = sorted(shares, key=lambda share: -share.weight)
    return [heaviest_first[first::count] for first in range(count)]
