"""How long to wait before a sink's commit is tried again: longer each time, and never for ever."""

import time

_FIRST = 0.5  # seconds
_LONGEST = 30.0


class Backoff:
    def __init__(self) -> None:
        self._pause = _FIRST
        self._until = 0.0

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._until

    def wait_longer(self) -> None:
        self._until = time.monotonic() + self._pause
        self._pause = min(self._pause * 2, _LONGEST)
