"""The agent's heartbeat: says that the driver lives, and learns whether it may go on and what there is to do.

Looking is cheap and often, beating is a write and rare. A driver that has not reached the store for its time to live
must not go on with what could do harm, because by then a restore may have given its place to another.
"""

import logging
import threading
import time
from collections.abc import Callable

from airflow_provider_ckpt.metastore import Beat, Metastore

_log = logging.getLogger(__name__)
_BEATS_PER_TTL = 6

OnBeat = Callable[[Beat], None]


class Heart:
    """A thread that looks every `poll` seconds.

    :param margin: seconds before the time to live is over at which the silence is too long: before anybody else starts.
    :param on_beat: hears everything that the store says.
    :param on_silence: hears once that the store was not reached for too long; the next `on_beat` ends the silence.
    """

    def __init__(
        self,
        store: Metastore,
        driver: tuple[str, int, str],  # pipeline, attempt, claim
        *,
        poll: float,
        ttl: float,
        margin: float,
        on_beat: OnBeat,
        on_silence: Callable[[], None],
    ) -> None:
        self._store = store
        self._driver = driver
        self._poll = poll
        self._ttl = ttl
        self._margin = margin
        self._on_beat = on_beat
        self._on_silence = on_silence
        self._stopped = threading.Event()
        self._complaint = ""
        self._beaten = time.monotonic()  # when the newest beat that arrived was sent: what others judge by
        self._threads = [
            threading.Thread(target=work, name=f"ckpt-{name}", daemon=True)
            for name, work in (("heart", self._beat), ("watch", self._watch))
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(timeout=5)

    def _beat(self) -> None:
        while not self._stopped.wait(self._poll):
            now = time.monotonic()
            is_due = now - self._beaten > self._ttl / _BEATS_PER_TTL
            try:
                beat = self._ask(is_due=is_due)
            except Exception as error:  # noqa: BLE001 - whatever it is: without its heart the pipeline pauses for good
                self._complain(str(error))
                continue
            self._complain("")
            if is_due:
                self._beaten = now
            self._on_beat(beat)

    def _complain(self, about: str) -> None:
        """Say it once, not at every look, and say when it is over."""
        if about and about != self._complaint:
            _log.warning("%s", about)
        elif self._complaint and not about:
            _log.warning("The store of %s answers again.", self._driver[0])
        self._complaint = about

    def _ask(self, *, is_due: bool) -> Beat:
        attempts = self._store.attempts
        return attempts.heartbeat(*self._driver) if is_due else attempts.look(*self._driver)

    def _watch(self) -> None:
        """In a thread of its own: a call to a store that does not answer may take long to come back."""
        was_silent = False
        while not self._stopped.wait(self._poll):
            is_silent = time.monotonic() - self._beaten > self._ttl - self._margin
            if is_silent and not was_silent:
                self._on_silence()
            was_silent = is_silent
