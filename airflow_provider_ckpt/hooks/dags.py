"""Which Dags look after a pipeline: they are named after it."""

from enum import StrEnum


class LastWord(StrEnum):
    """What follows the pipeline's name in the ids of its Dags."""

    RUN = "run"
    CHECKPOINT = "checkpoint"
    CLEANUP = "cleanup"
    RESTORE = "restore"
    SLA = "sla"


_BETWEEN = "__"


def dag_id_of(pipeline: str, last_word: LastWord) -> str:
    return f"{pipeline}{_BETWEEN}{last_word}"


def dag_ids_of(pipeline: str) -> list[str]:
    return [dag_id_of(pipeline, last_word) for last_word in LastWord]


def pipeline_of(dag_id: str) -> str | None:
    """The pipeline that a Dag would look after, by its name; None for any other Dag."""
    pipeline, _, last_word = dag_id.rpartition(_BETWEEN)
    return pipeline if pipeline and last_word in set(LastWord) else None
