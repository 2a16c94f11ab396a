"""Whether a new attempt can start from what the dead one has left: needs no Spark, so that any host can look."""

import logging
from collections.abc import Callable
from pathlib import Path

from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.protocol.cut import Graph
from airflow_provider_ckpt.protocol.records import Attempt
from airflow_provider_ckpt.spark.folders import AttemptFolder
from airflow_provider_ckpt.spark.laying_out import find_tip_damage

_log = logging.getLogger("airflow_provider_ckpt.spark")


def tip_checker(context: Context, work: Path) -> Callable[[Attempt], bool]:
    """For a restore: `tip_is_intact` for whichever attempt it asks about."""
    return lambda dead: tip_is_intact(context, work, dead)


def tip_is_intact(context: Context, work: Path, dead: Attempt) -> bool:
    """Every query was started, and every file that their tips need is there and matches its checksums."""
    graph = context.store.attempts.graph(dead.pipeline, dead.number)
    if not graph.queries:
        return False
    folder = AttemptFolder(work=work, pipeline=dead.pipeline, attempt=dead.number)
    damage = _find_missing(context, dead, graph) or find_tip_damage(graph, folder)
    if damage is not None:
        _log.info("Nothing starts from the tip of attempt %d of %s: %s.", dead.number, dead.pipeline, damage)
    return damage is None


def _find_missing(context: Context, dead: Attempt, graph: Graph) -> str | None:
    """Which query of the attempt that it continued it had not started when it died."""
    if dead.parent is None:
        return None
    before = context.store.attempts.graph(dead.pipeline, dead.parent)
    started = {query.name for query in graph.queries}
    missing = [query.name for query in before.queries if query.name not in started]
    return f"it died before it had started {missing[0]}" if missing else None
