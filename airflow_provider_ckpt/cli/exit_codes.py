"""What the exit codes mean, and which error leads to which."""

from enum import IntEnum

from airflow_provider_ckpt.protocol.errors import (
    AlreadyExists,
    Corrupt,
    LostRace,
    Misused,
    NotFound,
    OutcomeUnknown,
    Refused,
    TryAgain,
)


class ExitCode(IntEnum):
    DONE = 0
    UNEXPECTED = 1
    MISUSED = 2
    SKIPPED = 3
    NOT_FOUND = 4
    REFUSED = 5
    LOST_RACE = 6
    TRY_AGAIN = 7
    OUTCOME_UNKNOWN = 8
    CORRUPT = 9
    CHECKPOINT_FAILED = 10
    BREACHED = 11
    INTERRUPTED = 130


MEANINGS = {
    ExitCode.DONE: "done",
    ExitCode.UNEXPECTED: "unexpected failure: run again with -v to see more",
    ExitCode.MISUSED: "misused: the command or its arguments make no sense as they stand",
    ExitCode.SKIPPED: "skipped: the trigger did not start a checkpoint, and nothing is wrong",
    ExitCode.NOT_FOUND: "there is no such pipeline, checkpoint, savepoint or file",
    ExitCode.REFUSED: "refused: it would do harm; the text says what would allow it",
    ExitCode.LOST_RACE: "lost the race, or fenced: somebody else got there first",
    ExitCode.TRY_AGAIN: "try again: not answered or not finished in time",
    ExitCode.OUTCOME_UNKNOWN: "outcome unknown: look again, delete nothing",
    ExitCode.CORRUPT: "corrupt: bytes are not what they should be",
    ExitCode.CHECKPOINT_FAILED: "the checkpoint failed; the pipeline goes on",
    ExitCode.BREACHED: "a pipeline is not as its objectives want it",
    ExitCode.INTERRUPTED: "interrupted with Ctrl-C",
}

_CODES: tuple[tuple[type[BaseException], ExitCode], ...] = (  # the first that fits
    (KeyboardInterrupt, ExitCode.INTERRUPTED),
    (NotFound, ExitCode.NOT_FOUND),
    (Misused, ExitCode.MISUSED),
    (Refused, ExitCode.REFUSED),
    (AlreadyExists, ExitCode.REFUSED),
    (LostRace, ExitCode.LOST_RACE),
    (TryAgain, ExitCode.TRY_AGAIN),
    (OutcomeUnknown, ExitCode.OUTCOME_UNKNOWN),
    (Corrupt, ExitCode.CORRUPT),
)


def code_of(error: BaseException) -> ExitCode:
    return next((code for kind, code in _CODES if isinstance(error, kind)), ExitCode.UNEXPECTED)


def describe_codes() -> str:
    """The epilog of `ckpt --help`."""
    return "exit codes:\n" + "\n".join(f"  {code:>3}  {MEANINGS[code]}" for code in ExitCode)
