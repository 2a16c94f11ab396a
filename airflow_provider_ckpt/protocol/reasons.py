"""Why a trigger was skipped, why a checkpoint failed, what became of an acknowledgement."""

from enum import StrEnum


class SkipReason(StrEnum):
    """Why a trigger did not start a checkpoint. Nothing is wrong with the pipeline."""

    NOT_DUE = "not-due"  # the interval or the minimum pause has not passed
    STOPPED = "stopped"  # a person wants the pipeline stopped
    NO_ATTEMPT = "no-attempt"  # nothing runs that could be checkpointed
    ATTEMPT_SILENT = "attempt-silent"  # the running attempt's heartbeat is older than its time to live
    IN_FLIGHT = "in-flight"  # another checkpoint has not ended
    RESTORING = "restoring"  # a restore holds the lease
    CLEANUP_ACTIVE = "cleanup-active"  # a cleanup holds the lease
    CLEANUP_RUN_ACTIVE = "cleanup-run-active"  # Airflow has queued or running cleanup Dag runs
    STARTED_AGAIN = "started-again"  # it was to be stopped, and somebody has started it since
    CLEANUP_DUE = "cleanup-due"  # a cleanup has waited its maximum deferral: it goes first


CLEANUP_SKIPS = frozenset({SkipReason.CLEANUP_ACTIVE, SkipReason.CLEANUP_RUN_ACTIVE, SkipReason.CLEANUP_DUE})


class FailureReason(StrEnum):
    """Why a checkpoint failed."""

    TIMED_OUT = "timed-out"  # somebody did not reach its cut, or did not acknowledge, before the deadline
    DECLINED = "declined"  # a participant said that it can not take part this time
    NO_PARTICIPANTS = "no-participants"  # the frozen membership is empty
    INCONSISTENT_CUT = "inconsistent-cut"  # a reader had consumed what its upstream's cut does not contain
    STORAGE = "storage"  # the manifest could not be written
    BASE_CORRUPT = "base-corrupt"  # what it builds on was found to be damaged; the next one copies everything anew
    ABORTED = "aborted"  # a person, or a Dag, called it off
    ATTEMPT_SUPERSEDED = "attempt-superseded"  # a restore fenced the attempt that was taking it
    ATTEMPT_ENDED = "attempt-ended"  # the attempt that was taking it failed or stopped

    @property
    def counts(self) -> bool:
        """Whether it counts against the pipeline's tolerable failures."""
        return self in _COUNTED


_COUNTED = frozenset(
    {
        FailureReason.TIMED_OUT,
        FailureReason.DECLINED,
        FailureReason.NO_PARTICIPANTS,
        FailureReason.INCONSISTENT_CUT,
        FailureReason.STORAGE,
    }
)


class AckOutcome(StrEnum):
    """What became of an acknowledgement. Only ACCEPTED changes anything."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"  # this participant has answered before
    LATE = "late"  # the checkpoint is not waiting any more (or not yet)
    UNKNOWN = "unknown"  # not a member of this checkpoint
    FENCED = "fenced"  # an older attempt


EVIDENCE = frozenset({AckOutcome.LATE, AckOutcome.UNKNOWN, AckOutcome.FENCED})
