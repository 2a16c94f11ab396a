"""The life of a checkpoint as data: the phases, the table of transitions, and one `advance`.

::

    TRIGGERED ──► IN_PROGRESS ──► COMMITTING ──► COMPLETED ──► DISCARDING ──► DISCARDED
        └────► FAILED ◄┘
"""

from enum import StrEnum

from airflow_provider_ckpt.protocol.errors import Misused


class Phase(StrEnum):
    TRIGGERED = "TRIGGERED"  # the barrier is written; queries are reaching their cuts
    IN_PROGRESS = "IN_PROGRESS"  # membership is frozen; participants acknowledge
    COMMITTING = "COMMITTING"  # decided; sinks are publishing
    COMPLETED = "COMPLETED"  # restorable, every sink has published
    FAILED = "FAILED"  # as if it had never been triggered
    DISCARDING = "DISCARDING"  # condemned; its files are going
    DISCARDED = "DISCARDED"  # gone


TRANSITIONS: dict[Phase, frozenset[Phase]] = {
    Phase.TRIGGERED: frozenset({Phase.IN_PROGRESS, Phase.FAILED}),
    Phase.IN_PROGRESS: frozenset({Phase.COMMITTING, Phase.FAILED}),
    Phase.COMMITTING: frozenset({Phase.COMPLETED}),
    Phase.COMPLETED: frozenset({Phase.DISCARDING}),
    Phase.FAILED: frozenset(),
    Phase.DISCARDING: frozenset({Phase.DISCARDED}),
    Phase.DISCARDED: frozenset(),
}

IN_FLIGHT = frozenset({Phase.TRIGGERED, Phase.IN_PROGRESS, Phase.COMMITTING})
UNDECIDED = frozenset({Phase.TRIGGERED, Phase.IN_PROGRESS})
ENDED = frozenset({Phase.COMPLETED, Phase.FAILED, Phase.DISCARDING, Phase.DISCARDED})


def advance(current: Phase, to: Phase) -> Phase:
    """Return `to` when the table allows it after `current`."""
    if to not in TRANSITIONS[current]:
        allowed = ", ".join(sorted(TRANSITIONS[current])) or "nothing: it is final"
        raise Misused(f"A checkpoint can not go from {current} to {to}; after {current} comes {allowed}.")
    return to


def sources_of(to: Phase) -> frozenset[Phase]:
    """The phases from which `to` can be reached in one step."""
    return frozenset(phase for phase, following in TRANSITIONS.items() if to in following)
