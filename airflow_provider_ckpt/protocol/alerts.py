"""What people are told: that something is wrong, that it still is, that it is over."""

from dataclasses import dataclass
from enum import StrEnum

from airflow_provider_ckpt.protocol.objectives import ProblemKind


class AlertState(StrEnum):
    NEW = "new"
    LASTS = "lasts"  # a reminder
    OVER = "over"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    pipeline: str
    kind: ProblemKind
    state: AlertState
    text: str

    def __str__(self) -> str:
        match self.state:
            case AlertState.NEW:
                return f"{self.pipeline}: {self.text}"
            case AlertState.LASTS:
                return f"{self.pipeline}, still: {self.text}"
            case AlertState.OVER:
                return f"{self.pipeline}, over: {self.text}"
