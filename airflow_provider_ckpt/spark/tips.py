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


def tip_checker(work: Path) -> Callable[[Attempt], str | None]:
    """For a restore: `tip_damage` for whichever attempt it asks about."""
    return lambda dead: tip_damage(work, dead)


def tip_damage(work: Path, dead: Attempt) -> str | None:
    """None when it has queries, and every file that their tips need is there, has a checksum and matches it."""
    damage = find_damage(AttemptFolder(work=work, pipeline=dead.pipeline, attempt=dead.number).left())
    if damage is not None:
        _log.warning("Nothing starts from the tip of attempt %d of %s: %s.", dead.number, dead.pipeline, damage)
    return damage


def find_damage(dead: AttemptFolder) -> str | None:
    try:
        graph, _ = read_descriptions(dead)
    except (CkptError, OSError) as error:
        return str(error)
    if not graph.queries:
        return f"{dead.root} has no query"
    # What was laid out from a checkpoint counts from the start of its query: a sink may be ahead of it until then.
    laid_out = (location.name for location in dead.locations)
    if (missing := next((name for name in laid_out if name not in graph.names), None)) is not None:
        return f"it died before it had started {missing}"
    return find_tip_damage(graph, dead)
