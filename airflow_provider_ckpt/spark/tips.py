"""Whether a new attempt can start from what the dead one has left: needs no Spark, so that any host can look."""

import logging
from pathlib import Path

from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.protocol.records import Attempt
from airflow_provider_ckpt.spark.folders import AttemptFolder
from airflow_provider_ckpt.spark.laying_out import find_tip_damage

_log = logging.getLogger("airflow_provider_ckpt.spark")


def tip_is_intact(context: Context, work: Path, dead: Attempt) -> bool:
    """Every file that the tips of all its queries need is there and matches its checksums."""
    graph = context.store.attempts.graph(dead.pipeline, dead.number)
    if not graph.queries:
        return False
    folder = AttemptFolder(work=work, pipeline=dead.pipeline, attempt=dead.number)
    damage = find_tip_damage(graph, folder)
    if damage is not None:
        _log.info("Nothing starts from the tip of attempt %d of %s: %s.", dead.number, dead.pipeline, damage)
    return damage is None
