"""Whether a new attempt can start from what the dead one has left: needs no Spark, so that any host can look."""

import logging
from collections.abc import Callable
from pathlib import Path

from airflow_provider_ckpt.protocol.errors import CkptError
from airflow_provider_ckpt.protocol.records import Attempt
from airflow_provider_ckpt.spark.folders import AttemptFolder
from airflow_provider_ckpt.spark.laying_out import find_tip_damage
from airflow_provider_ckpt.spark.notes import read_descriptions

_log = logging.getLogger("airflow_provider_ckpt.spark")


def tip_checker(work: Path) -> Callable[[Attempt], bool]:
    """For a restore: `tip_is_intact` for whichever attempt it asks about."""
    return lambda dead: tip_is_intact(work, dead)


def tip_is_intact(work: Path, dead: Attempt) -> bool:
    """It has queries, and every file that their tips need is there and matches its checksums."""
    damage = find_damage(AttemptFolder(work=work, pipeline=dead.pipeline, attempt=dead.number))
    if damage is not None:
        _log.info("Nothing starts from the tip of attempt %d of %s: %s.", dead.number, dead.pipeline, damage)
    return damage is None


def find_damage(dead: AttemptFolder) -> str | None:
    try:
        graph, _ = read_descriptions(dead)
    except (CkptError, OSError) as error:
        return str(error)
    if not graph.queries:
        return f"{dead.root} has no query"
    # What was laid out from a checkpoint counts from the start of its query: an output may be ahead of it until then.
    laid_out = (location.name for location in dead.locations)
    if (missing := next((name for name in laid_out if name not in graph.names), None)) is not None:
        return f"it died before it had started {missing}"
    return find_tip_damage(graph, dead)
