"""A clock that moves when told."""

from datetime import UTC, datetime, timedelta


class ManualClock:
    """Hand it to `open_metastore(url, clock=…)`: the store's time is then yours.

    ::

        clock = ManualClock()
        store = open_metastore("sqlite://", clock)
        clock.advance(minutes=11)
    """

    def __init__(self, now: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def advance(self, **duration: float) -> None:
        """Move on by a timedelta's keywords."""
        self.now += timedelta(**duration)
