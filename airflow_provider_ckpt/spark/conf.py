"""What the agent is told: `spark.ckpt.*` in Spark's configuration first, then the environment."""

from collections.abc import Callable
from dataclasses import dataclass

from airflow_provider_ckpt.coordinator.places import Places, places
from airflow_provider_ckpt.protocol.errors import Misused
from airflow_provider_ckpt.protocol.paths import check_name

PIPELINE = "spark.ckpt.pipeline"
METASTORE = "spark.ckpt.metastore.secret"  # Spark redacts keys with "secret" in them; CKPT_METASTORE does as well
STORAGE = "spark.ckpt.storage"
WORK = "spark.ckpt.work"
ATTEMPT = "spark.ckpt.attempt"
POLL = "spark.ckpt.poll"
TASKS = "spark.ckpt.tasks"
KNOWN = frozenset({PIPELINE, METASTORE, STORAGE, WORK, ATTEMPT, POLL, TASKS})

Get = Callable[[str], str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConf:
    pipeline: str | None  # None: run as plain Spark
    places: Places
    attempt: int | None = None  # the one that was planned for this driver; None: whichever is next
    poll: float = 0.5  # seconds between two looks for a barrier
    tasks: int = 4  # Spark tasks that make a checkpoint durable, at most


def read_conf(get: Get, given: frozenset[str] = frozenset()) -> AgentConf:
    """:raises Misused: for a key that does not exist, or a value that can not be."""
    unknown = sorted(key for key in given if key.startswith("spark.ckpt.") and key not in KNOWN)
    if unknown:
        raise Misused(f"There is no {unknown[0]}; there are {', '.join(sorted(KNOWN))}.")
    pipeline = get(PIPELINE)
    attempt = get(ATTEMPT)
    return AgentConf(
        pipeline=None if pipeline is None else check_name("pipeline", pipeline),
        places=places(get(METASTORE), get(STORAGE), get(WORK)),
        attempt=None if attempt is None else int(_number(ATTEMPT, attempt, least=1)),
        poll=_number(POLL, get(POLL) or "0.5", least=0.05),
        tasks=int(_number(TASKS, get(TASKS) or "4", least=1)),
    )


def _number(key: str, text: str, *, least: float) -> float:
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not least <= number < float("inf"):
        raise Misused(f"{key} is {text!r:.40}: a number of at least {least:g} belongs there.")
    return number
