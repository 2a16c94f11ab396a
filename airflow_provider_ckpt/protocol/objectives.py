"""What a pipeline should be like, and the problems that people are told of when it is not."""

from dataclasses import dataclass, fields
from datetime import timedelta
from enum import StrEnum

from airflow_provider_ckpt.protocol.codec import Fields, Json, JsonObject
from airflow_provider_ckpt.protocol.duration import check_duration, format_duration, parse_duration
from airflow_provider_ckpt.protocol.errors import Corrupt, Misused


class ProblemKind(StrEnum):
    FAILING = "failing"  # checkpoints fail in a row
    STALE = "stale"  # the newest completed checkpoint is too old, or there is none
    SLOW = "slow"  # a checkpoint takes too long
    COMMIT_STUCK = "commit-stuck"  # a sink does not commit what is decided
    CLEANUP_BLOCKED = "cleanup-blocked"  # a cleanup does not get its turn
    SILENT = "silent"  # the driver does not beat any more
    DOWN = "down"  # it should run, and does not
    GIVEN_UP = "given-up"  # it should run, and its restart strategy has given up
    PAUSED = "paused"  # a Dag of the pipeline is paused


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    kind: ProblemKind
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Objectives:
    """None: no objective of this kind."""

    recovery_point: timedelta | None = None  # how old the newest completed checkpoint may be
    max_duration: timedelta | None = None  # how long a checkpoint may take
    recovery_time: timedelta | None = None  # how long it may be down; None: a failure is told at once
    remind_every: timedelta | None = timedelta(hours=4)  # people are told again of what lasts

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None:
                check_duration(f"The objective {each.name}", value, least=timedelta(milliseconds=1))

    def to_json(self) -> JsonObject:
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: None if value is None else format_duration(value) for name, value in values.items()}

    @classmethod
    def from_json(cls, document: Json) -> "Objectives":
        """Read what `to_json` wrote."""
        read = Fields("The objectives", document)
        try:
            found = cls(**{name: _duration(read.optional_text(name)) for name in NAMES})
        except Misused as error:
            raise Corrupt(f"The objectives make no sense: {error}") from error
        read.done()
        return found


NAMES = tuple(each.name for each in fields(Objectives))


def _duration(text: str | None) -> timedelta | None:
    return None if text is None else parse_duration(text)
