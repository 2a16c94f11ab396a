"""What the agent is told: `spark.ckpt.*` in Spark's configuration first, then the environment."""

from collections.abc import Callable
from dataclasses import dataclass

from airflow_provider_ckpt.coordinator.places import Places, places
from airflow_provider_ckpt.protocol.errors import Misused
from airflow_provider_ckpt.protocol.paths import check_name
from airflow_provider_ckpt.spark.folders import check_plain
from airflow_provider_ckpt.spark.statsd import Emit, nowhere, to_statsd
from airflow_provider_ckpt.spark.telling import Tell, by_mail, by_webhook

PIPELINE = "spark.ckpt.pipeline"
METASTORE = "spark.ckpt.metastore.secret"  # Spark redacts keys with "secret" in them; CKPT_METASTORE does as well
STORAGE = "spark.ckpt.storage"
WORK = "spark.ckpt.work"
ATTEMPT = "spark.ckpt.attempt"
POLL = "spark.ckpt.poll"
TASKS = "spark.ckpt.tasks"
MARGIN = "spark.ckpt.margin"
WEBHOOK = "spark.ckpt.alert.webhook.secret"
MAIL_SERVER = "spark.ckpt.alert.mail.server"
MAIL_FROM = "spark.ckpt.alert.mail.from"
MAIL_TO = "spark.ckpt.alert.mail.to"
STATSD = "spark.ckpt.statsd"
ALERT_EVERY = "spark.ckpt.alert.every"
_ALERTS = (WEBHOOK, MAIL_SERVER, MAIL_FROM, MAIL_TO, ALERT_EVERY)
KNOWN = frozenset({PIPELINE, METASTORE, STORAGE, WORK, ATTEMPT, POLL, TASKS, MARGIN, STATSD, *_ALERTS})

_MARGIN_SHARE = 0.2  # of the time to live

Get = Callable[[str], str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConf:
    pipeline: str | None  # None: run as plain Spark
    places: Places
    attempt: int | None = None  # the one that was planned for this driver; None: whichever is next
    poll: float = 0.5  # seconds between two looks for a barrier
    tasks: int = 4  # Spark tasks that make a checkpoint durable, at most
    margin: float | None = None  # seconds before its time to live is over that a cut-off driver pauses; None: a fifth
    tell: Tell | None = None  # how people are told of problems from here; None: by others only
    emit: Emit = nowhere  # where the driver's metrics go
    alert_every: float = 60.0  # seconds between two looks for problems


def margin_of(conf: AgentConf, ttl: float) -> float:
    """How long before its time to live is over a driver that does not reach the metastore pauses its queries.

    :raises Misused: when nothing would be left of the time to live.
    """
    if conf.margin is None:
        return ttl * _MARGIN_SHARE
    if conf.margin >= ttl:
        raise Misused(
            f"{MARGIN} is {conf.margin:g} s and the pipeline's attempt_ttl is {ttl:g} s: a driver would pause at once. "
            f"Raise attempt_ttl with `ckpt pipelines {conf.pipeline} --set attempt_ttl=…`, or take a smaller margin."
        )
    return conf.margin


def read_conf(get: Get, given: frozenset[str] = frozenset()) -> AgentConf:
    """:raises Misused: for a key that does not exist, or a value that can not be."""
    unknown = sorted(key for key in given if key.startswith("spark.ckpt.") and key not in KNOWN)
    if unknown:
        raise Misused(f"There is no {unknown[0]}; there are {', '.join(sorted(KNOWN))}.")
    pipeline = get(PIPELINE)
    attempt = get(ATTEMPT)
    found = places(get(METASTORE), get(STORAGE), get(WORK))
    check_plain(found.work)  # here, before anything is claimed
    return AgentConf(
        pipeline=None if pipeline is None else check_name("pipeline", pipeline),
        places=found,
        attempt=None if attempt is None else int(_number(ATTEMPT, attempt, least=1)),
        poll=_number(POLL, get(POLL) or "0.5", least=0.05),
        tasks=int(_number(TASKS, get(TASKS) or "4", least=1)),
        margin=None if (margin := get(MARGIN)) is None else _number(MARGIN, margin, least=0.05),
        tell=_read_tell(get),
        emit=nowhere if (statsd := get(STATSD)) is None else to_statsd(statsd),
        alert_every=_number(ALERT_EVERY, get(ALERT_EVERY) or "60", least=0.05),
    )


def _read_tell(get: Get) -> Tell | None:
    webhook, server = get(WEBHOOK), get(MAIL_SERVER)
    if webhook is not None:
        return by_webhook(webhook)
    return None if server is None else by_mail(server, get(MAIL_FROM) or "ckpt@localhost", get(MAIL_TO) or "")


def _number(key: str, text: str, *, least: float) -> float:
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not least <= number < float("inf"):
        raise Misused(f"{key} is {text!r:.40}: a number of at least {least:g} belongs there.")
    return number
