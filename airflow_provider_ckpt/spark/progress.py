"""Progress of long work in a driver: a bar where a person looks on, lines in the log elsewhere."""

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_log = logging.getLogger(__name__)
_STEPS = 10


@contextmanager
def shown_progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Hears of every piece of work that is done; it may be called from several threads."""
    if sys.stderr.isatty():
        with _bar(what, total) as advance:
            yield advance
    else:
        yield _Lines(what, total)


@contextmanager
def _bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    from rich.console import Console  # noqa: PLC0415 - only where a person looks on
    from rich.progress import Progress  # noqa: PLC0415

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda count: progress.advance(task, count)


class _Lines:
    def __init__(self, what: str, total: int) -> None:
        self._what = what
        self._total = max(total, 1)
        self._done = 0
        self._said = 0
        self._lock = threading.Lock()

    def __call__(self, count: int) -> None:
        with self._lock:
            self._done += count
            step = self._done * _STEPS // self._total
            if step > self._said:
                self._said = step
                _log.info("%s: %d %%", self._what, step * 100 // _STEPS)
