"""What a pipeline's owner can set, with defaults that work."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from functools import lru_cache

from airflow_provider_ckpt.protocol.codec import Fields, Json, JsonObject, canonical
from airflow_provider_ckpt.protocol.duration import check_duration, format_duration, parse_duration
from airflow_provider_ckpt.protocol.errors import Corrupt, Misused
from airflow_provider_ckpt.protocol.objectives import NAMES as OBJECTIVES
from airflow_provider_ckpt.protocol.objectives import Objectives
from airflow_provider_ckpt.protocol.restart import RestartStrategy, parse_restart
from airflow_provider_ckpt.protocol.retention import Retention


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    interval: timedelta = timedelta(minutes=5)  # from one trigger to the next
    min_pause: timedelta = timedelta(0)  # from an end to the next trigger
    timeout: timedelta = timedelta(minutes=10)  # from the trigger to the last acknowledgement
    tolerable_failures: int = 3  # this many failed in a row make the pipeline unhealthy
    attempt_ttl: timedelta = timedelta(seconds=60)  # a heartbeat older than this is silence
    claim_timeout: timedelta = timedelta(minutes=10)  # from a submission until its driver has claimed the attempt
    lease_ttl: timedelta = timedelta(minutes=2)  # of cleanups and restores, renewed while they work
    max_deferral: timedelta = timedelta(minutes=10)  # how long cleanup and triggering may put each other off
    orphan_grace: timedelta = timedelta(hours=1)  # after a checkpoint ended, before its stray files count as orphans
    quarantine: timedelta = timedelta(hours=24)  # between finding an unexplained file and deleting it
    keep_events: timedelta = timedelta(days=30)  # and the rows of failed and discarded checkpoints
    keep_audit: timedelta = timedelta(days=365)  # events of what a person did
    objectives: Objectives = field(default_factory=Objectives)
    retention: Retention = field(default_factory=Retention)
    restart: RestartStrategy = field(default_factory=lambda: parse_restart("exponential(5 in 1h)"))

    def __post_init__(self) -> None:
        for name in _DURATIONS:
            least = timedelta(milliseconds=1) if name in _POSITIVE else timedelta(0)
            check_duration(f"The setting {name}", getattr(self, name), least=least)
        if self.tolerable_failures < 0:
            raise Misused("The setting tolerable_failures can not be negative: 0 alerts at the first failure.")

    def to_json(self) -> JsonObject:
        document: dict[str, Json] = {name: format_duration(getattr(self, name)) for name in _DURATIONS}
        document["tolerable_failures"] = self.tolerable_failures
        document["objectives"] = self.objectives.to_json()
        document["retention"] = self.retention.to_json()
        document["restart"] = str(self.restart)
        return document


_DURATIONS = tuple(each.name for each in fields(Settings) if each.type in ("timedelta", timedelta))
_MOST_DIGITS = 18
_POSITIVE = frozenset({"timeout", "attempt_ttl", "claim_timeout", "lease_ttl"})


def settings_from_json(document: JsonObject) -> Settings:
    """Read settings as stored; what is missing gets its default, what is unknown is refused."""
    return _read(canonical(document))


@lru_cache(maxsize=1000)  # with every row of a pipeline that is read, and seldom others
def _read(data: bytes) -> Settings:
    fields_ = Fields("settings", {**Settings().to_json(), **json.loads(data)})
    try:
        settings = Settings(
            **{name: _duration(name, fields_.text(name)) for name in _DURATIONS},
            tolerable_failures=fields_.whole("tolerable_failures"),
            objectives=Objectives.from_json({**Objectives().to_json(), **fields_.object("objectives")}),
            retention=Retention.from_json({**Retention().to_json(), **fields_.object("retention")}),
            restart=parse_restart(fields_.text("restart")),
        )
    except Misused as error:  # nobody asked for it now: what was stored is damaged
        raise Corrupt(str(error)) from error
    fields_.done()
    return settings


def _duration(name: str, text: str) -> timedelta:
    try:
        return parse_duration(text)
    except Misused as error:
        raise Misused(f"The setting {name}: {error}") from error


def change_settings(settings: Settings, changes: Mapping[str, str]) -> Settings:
    """Apply `name=value` texts, as a command line gives them; `keep_last`, `keep_daily`, … reach into retention."""
    document = dict(settings.to_json())
    retention = dict(settings.retention.to_json())
    objectives = dict(settings.objectives.to_json())
    for name, text in changes.items():
        if name in _RETENTION:
            retention[_RETENTION[name]] = _retention_value(name, text)
        elif name in OBJECTIVES:
            objectives[name] = None if text == "none" else format_duration(_duration(name, text))
        elif name == "tolerable_failures":
            document[name] = _whole(name, text)
        elif name in document and name not in ("retention", "objectives"):
            document[name] = text
        else:
            known = ", ".join([*_DURATIONS, "tolerable_failures", "restart", *OBJECTIVES, *_RETENTION])
            raise Misused(f"There is no setting {name!r}. Settings are: {known}.")
    document["retention"] = retention
    document["objectives"] = objectives
    try:
        return settings_from_json(document)
    except Corrupt as error:  # nothing is damaged: what was asked for can not be
        raise Misused(str(error)) from error


_RETENTION = {
    "keep_last": "last",
    "keep_hourly": "hourly",
    "keep_daily": "daily",
    "keep_weekly": "weekly",
    "keep_bytes": "max_bytes",
    "keep_age": "max_age",
}


def _retention_value(name: str, text: str) -> Json:
    if text == "none":
        return 0 if name in ("keep_hourly", "keep_daily", "keep_weekly") else None
    return format_duration(_duration(name, text)) if name == "keep_age" else _whole(name, text)


def _whole(name: str, text: str) -> int:
    if not text.isdecimal() or len(text) > _MOST_DIGITS:
        raise Misused(f"The setting {name} needs a whole number, not {text!r}.")
    return int(text)
