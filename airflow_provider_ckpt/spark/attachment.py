"""A driver's attachment to the store: it beats, answers barriers, notices what ends, and ends the attempt itself.

Three threads: the heart beats and looks, the watch notices silence, and the manager does everything that takes time,
one thing after the other: a checkpoint, a pause, the end.
"""

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from uuid import uuid4

from pyspark.sql import SparkSession

from airflow_provider_ckpt.coordinator.commit import commit
from airflow_provider_ckpt.metastore import Beat
from airflow_provider_ckpt.protocol.codec import JsonObject
from airflow_provider_ckpt.protocol.cut import Graph, Query
from airflow_provider_ckpt.protocol.errors import (
    CkptError,
    Fenced,
    LostRace,
    Misused,
    OutcomeUnknown,
    TryAgain,
)
from airflow_provider_ckpt.protocol.metrics import of_driver
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.records import (
    AttemptStatus,
    Checkpoint,
    DesiredState,
    Ref,
    TriggerRequest,
)
from airflow_provider_ckpt.spark.asking import Asked
from airflow_provider_ckpt.spark.capturing import count_unread
from airflow_provider_ckpt.spark.checkpointing import Checkpointing, Site
from airflow_provider_ckpt.spark.claiming import Claimed
from airflow_provider_ckpt.spark.conf import margin_of
from airflow_provider_ckpt.spark.fitting import Fitting
from airflow_provider_ckpt.spark.folders import AttemptFolder
from airflow_provider_ckpt.spark.heart import Heart
from airflow_provider_ckpt.spark.jobs import run_as_tasks
from airflow_provider_ckpt.spark.notes import write_description
from airflow_provider_ckpt.spark.persisting import patiently
from airflow_provider_ckpt.spark.queries import Queries, Started
from airflow_provider_ckpt.spark.sinks.backoff import Backoff
from airflow_provider_ckpt.spark.sinks.base import Name, Sink
from airflow_provider_ckpt.spark.sinks.ledger import Ledger
from airflow_provider_ckpt.spark.sinks.recovering import Beginning, recover
from airflow_provider_ckpt.spark.sinks.seat import Seat
from airflow_provider_ckpt.spark.streaming.location import Location
from airflow_provider_ckpt.spark.telling import Tell
from airflow_provider_ckpt.spark.watchman import Watchman

_log = logging.getLogger("airflow_provider_ckpt.spark")
_TICK = 0.1  # seconds
_STARTING = 30.0  # seconds that a program which is to stop has to start its other queries


@dataclass(frozen=True, slots=True, kw_only=True)
class _Taken:
    """The checkpoint that was taken last, until its sinks have published."""

    ref: Ref
    checkpointing: Checkpointing
    cut: dict[str, int | None]


class Attachment:
    """Attaches the queries of one driver to its attempt."""

    def __init__(self, spark: SparkSession, claimed: Claimed, queries: Queries) -> None:
        self._claimed = claimed
        self._queries = queries
        self._fitting = Fitting(claimed, queries)
        self._store = claimed.context.store
        self.folder: AttemptFolder = claimed.folder
        settings = self._store.pipelines.get(claimed.pipeline).settings
        self._timeout = settings.timeout.total_seconds()
        self._site = Site(
            context=claimed.context,
            folder=claimed.folder,
            known=claimed.known,
            run_shares=lambda order, shares: run_as_tasks(spark, order, shares, claimed.conf.tasks),
            metastore_url=claimed.conf.places.metastore_url,
            storage_url=claimed.conf.places.storage_url,
            emit=claimed.conf.emit,
        )
        self._heart = Heart(
            self._store,
            claimed.driver,
            poll=claimed.conf.poll,
            ttl=settings.attempt_ttl.total_seconds(),
            margin=margin_of(claimed.conf, settings.attempt_ttl.total_seconds()),
            on_beat=self._hear,
            on_silence=self._silence,
        )
        self._watchman = None if claimed.conf.tell is None else _watchman(claimed, claimed.conf.tell)
        self._manager = threading.Thread(target=self._manage, name="ckpt-manager", daemon=True)
        self._barrier: Ref | None = None
        self._kept_waiting: Ref | None = None
        self._stop_by: float | None = None
        self._unread: dict[str, int] = {}  # files of its channels that a query had not read when it was run again
        self._committing: Ref | None = None
        self._answered = 0  # the newest checkpoint that was answered; ids only grow
        self._taken: _Taken | None = None
        self._backoff = Backoff()
        self._last_cut: dict[str, int | None] = {}
        self._began_at = {name: Location(self.folder.location(name)).committed for name in claimed.origin.graph.names}
        self._has_progressed = False
        self._is_fenced = threading.Event()
        self._is_silent = threading.Event()
        self._is_to_stop = threading.Event()
        self._has_all = threading.Event()  # the program has said that all its queries are started
        self._may_finish = threading.Event()
        self._has_ended = threading.Event()
        self._failure: CkptError | None = None

    def start(self) -> None:
        self._heart.start()
        if self._watchman is not None:
            self._watchman.start()
        self._manager.start()

    # the queries

    def pinned(self, query: str) -> Mapping[str, str]:
        """The settings that Spark has pinned for a query which goes on: it does not take others."""
        location = Location(self.folder.location(query))
        newest = location.planned
        return {} if newest is None else location.offsets(newest).conf

    def check_fits(self, asked: Asked, made_of: JsonObject) -> None:
        """:raises Refused: when the query does not go on with what the attempt starts from."""
        self._fitting.check(asked, made_of)

    def open_sink(self, query: str, sink: Sink) -> Seat:
        """The seat of a sink, with its target where this attempt starts from."""
        origin, attempt = self._claimed.origin, self._claimed.attempt
        seat = Seat(
            name=Name(pipeline=self._claimed.pipeline, sink=f"{query}/sink"),
            attempt=attempt.number,
            sink=sink,
            ledger=Ledger(self.folder.staged(query), origin.floor_of(query)),
            scratch=self.folder.scratch(query),
        )
        batch = Location(self.folder.location(query)).committed
        seat.ledger.upto(batch)  # refused when something of the tip is missing
        beginning = Beginning(decided=origin.decided, accepted=attempt.accepted, batch=batch)
        recover(self._claimed.context, seat, beginning)
        return seat

    @contextmanager
    def announced(self, query: Query, made_of: JsonObject) -> Iterator[None]:
        """Folder and store hear of a query before it runs: else one that dies soon would seem never to have run.

        It is taken back when the query does not start, or is refused and stopped: the mended program starts it afresh.
        Where that can not be said it stays, and a person is asked.
        """
        with self._site.starting:
            declared = self._queries.graph
            write_description(self.folder, query, made_of)
            self.folder.location(query.name).mkdir(parents=True, exist_ok=True)
            try:
                patiently(lambda: self._declare(Graph((*declared.queries, query))))
                yield
            except Exception:
                self._take_back(query, declared)
                raise

    def add(self, started: Started) -> None:
        self._queries.add(started)

    def _take_back(self, query: Query, declared: Graph) -> None:
        with suppress(CkptError):
            self._declare(declared)
            if query.name not in self._claimed.origin.graph.names:
                self.folder.forget_query(query.name)

    def _declare(self, graph: Graph) -> None:
        self._store.attempts.declare(*self._claimed.driver, graph)

    # the end

    def has_all(self) -> None:
        """The program has started all its queries: from now on checkpoints count.

        :raises Refused: when one is missing.
        """
        self._fitting.check_all()
        self._has_all.set()

    def wait(self) -> None:
        """Until the attempt has ended, in whichever way."""
        self.has_all()
        self._may_finish.set()
        while not self._has_ended.wait(1.0):  # a wait without end would not hear Ctrl-C
            pass
        if self._failure is not None:
            raise self._failure

    def close(self, failure: str | None) -> None:
        if not self._has_ended.is_set():
            self._queries.stop()
            status = AttemptStatus.STOPPED if failure is None else AttemptStatus.FAILED
            self._end(status, failure)
        self._heart.stop()
        if self._watchman is not None:
            self._watchman.stop()
        self._manager.join(timeout=10)

    # what the store says

    def _hear(self, beat: Beat) -> None:
        if not beat.is_current:
            if not self._is_fenced.is_set():
                self._is_fenced.set()
                self._queries.pause()  # now: the manager may be in the middle of a checkpoint
            return
        self._is_silent.clear()
        if beat.desired_state is DesiredState.STOPPED:
            self._is_to_stop.set()
        flying = beat.in_flight
        self._barrier = flying.ref if flying is not None and flying.phase is Phase.TRIGGERED else None
        self._committing = flying.ref if flying is not None and flying.phase is Phase.COMMITTING else None

    def _silence(self) -> None:
        attempt = f"Attempt {self.folder.attempt} of {self._claimed.pipeline}"
        _log.warning(
            "%s has not reached the metastore for too long and pauses its queries: a newer attempt may have taken its "
            "place.",
            attempt,
        )
        self._is_silent.set()
        self._queries.pause()
        _log.warning("%s is paused.", attempt)

    # the manager

    def _manage(self) -> None:
        while not self._has_ended.is_set():
            try:
                self._step()
            except Exception as error:  # noqa: BLE001 - whatever it is, the attempt must not go on unwatched
                self._break_down(error)
            time.sleep(_TICK)

    def _break_down(self, error: Exception) -> None:
        """One that slept and was replaced finds its folder gone: then that is the reason, not what it ran into."""
        if self._was_replaced():
            self._stop_as_fenced()
            return
        _log.exception("The agent of %s has failed.", self._claimed.pipeline)
        self._give_up(Misused(f"The agent has failed: {error}"))

    def _was_replaced(self) -> bool:
        with suppress(CkptError):
            return not self._store.attempts.look(*self._claimed.driver).is_current
        return self._is_fenced.is_set()

    def _step(self) -> None:
        if self._is_fenced.is_set():
            self._stop_as_fenced()
        elif (failure := self._find_failure()) is not None:
            self._fail(failure)
        elif self._queries.has_paused and not self._is_silent.is_set():
            self._resume()
        elif self._is_publication_due():
            self._publish()
        elif self._is_to_stop.is_set() and self._may_stop():
            self._finish(AttemptStatus.STOPPED)
        elif self._barrier is not None and self._is_ready():
            self._answer(self._barrier)
        elif self._may_finish.is_set() and self._have_all_ended():
            self._drain_or_finish()
        else:
            self._say_what_a_checkpoint_waits_for()
            self._note_progress()

    def _find_failure(self) -> str | None:
        return next((why for each in self._queries if (why := each.failure) is not None), None)

    def _is_publication_due(self) -> bool:
        return (self._taken or self._committing) is not None and self._backoff.is_over

    def _note_progress(self) -> None:
        if not self._has_progressed and any(
            batch is not None and batch != self._began_at.get(name) for name, batch in self._committed().items()
        ):
            with suppress(TryAgain):
                self._store.attempts.note_progress(*self._claimed.driver)
                self._has_progressed = True

    def _is_ready(self) -> bool:
        """Every query of the program has started: a checkpoint without one could not be continued by the program."""
        queries = list(self._queries)
        has_all = self._has_all.is_set() and not self._site.starting.locked()
        return bool(queries) and has_all and all(each.is_found for each in queries)

    def _may_stop(self) -> bool:
        """With a last checkpoint, if the program says in time that it has all its queries; else as it is."""
        self._stop_by = self._stop_by or time.monotonic() + _STARTING
        is_over = time.monotonic() > self._stop_by and not self._has_all.is_set() and not self._site.starting.locked()
        return self._is_ready() or not self._queries.names or is_over

    def _say_what_a_checkpoint_waits_for(self) -> None:
        """Once for each: a program that never says that it has all its queries is never checkpointed."""
        if self._barrier not in (None, self._kept_waiting) and not self._has_all.is_set():
            self._kept_waiting = self._barrier
            _log.warning(
                "%s waits until the program says that all its queries are started: by await_termination(), or by "
                "all_started() where it does not wait.",
                self._barrier,
            )

    def _have_all_ended(self) -> bool:
        queries = list(self._queries)
        return all(each.is_found and not each.is_active and not each.is_paused for each in queries)

    def _drain_or_finish(self) -> None:
        """A bounded query that has not read all of its channels planned before they were filled: it runs again.

        The most upstream one first. One that leaves as much unread as before has its reasons, and is left alone. One
        may have failed since it was looked at: now that all have ended, what they say is their last word.
        """
        if (failure := self._find_failure()) is not None:
            self._fail(failure)
            return
        for name in reversed(self._queries.graph.capture_order()):
            query = self._queries.get(name)
            unread = count_unread(self.folder, query.asked, query.properties) if query.is_bounded else 0
            if unread and unread != self._unread.get(name):
                self._unread[name] = unread
                query.run_again()
                return
        self._finish(AttemptStatus.FINISHED)

    def _answer(self, ref: Ref) -> Checkpoint | None:
        if ref.id <= self._answered:
            return None
        self._answered = ref.id
        before = self._committed()
        checkpointing = Checkpointing(self._site, ref, lambda: (self._queries.graph, self._queries.members()))
        checkpoint = checkpointing.run()
        if checkpoint is not None:
            self._taken = _Taken(ref=ref, checkpointing=checkpointing, cut=before)
            self._publish()
        return checkpoint

    def _publish(self) -> None:
        """Commit the sinks of the checkpoint that is decided; those that fail are tried again, later and later."""
        ref = self._taken.ref if self._taken is not None else self._committing
        if ref is None:
            return
        checkpoint = self._commit(ref)
        if checkpoint is None or checkpoint.phase is Phase.COMMITTING:
            self._backoff.wait_longer()
            return
        self._backoff, self._committing = Backoff(), None
        taken, self._taken = self._taken, None
        if checkpoint.phase is Phase.COMPLETED:
            self._settle_sinks(ref)
            if taken is not None:
                self._learn(taken, checkpoint)

    def _commit(self, ref: Ref) -> Checkpoint | None:
        """None when nobody answered, or a newer attempt has taken over: the heart will hear of it."""
        try:
            return commit(self._claimed.context, ref, self.folder.attempt, self._queries.seats)
        except (TryAgain, OutcomeUnknown, LostRace) as error:
            _log.warning("%s is not committed yet: %s", ref, error)
            return None

    def _settle_sinks(self, ref: Ref) -> None:
        """What it had pledged is done with, by its own cut: a later one may have pledged more, and failed."""
        commits, cuts = patiently(lambda: (self._store.sinks.of(ref), self._store.barriers.cuts(ref)))
        resolved = {each.sink for each in commits if not each.published}
        for query in self._queries:
            if query.seat is not None and query.name in cuts:
                batch = cuts[query.name].properties.get("committed")
                is_resolved = query.seat.name.sink in resolved
                query.seat.completed(batch if isinstance(batch, int) else None, is_resolved=is_resolved)

    def _learn(self, taken: _Taken, checkpoint: Checkpoint) -> None:
        taken.checkpointing.learn(checkpoint)
        self._last_cut = taken.cut
        self.folder.forget_older()

    def _committed(self) -> dict[str, int | None]:
        return {each.name: Location(self.folder.location(each.name)).committed for each in self._queries}

    def _resume(self) -> None:
        stranded = list(self._queries.resume())
        if stranded:
            self._give_up(
                Misused(
                    f"{', '.join(stranded)} were stopped while the metastore was not reached; start the driver again."
                )
            )

    def _stop_as_fenced(self) -> None:
        self._queries.stop()
        self._note_fenced()
        self._has_ended.set()

    def _note_fenced(self) -> None:
        self._failure = Fenced(
            f"Attempt {self.folder.attempt} of {self._claimed.pipeline} was replaced by a newer one: its queries are "
            "stopped, and nothing of it counts any more."
        )
        _log.warning("%s", self._failure)
        self._site.emit(of_driver(self._claimed.pipeline, {"fenced": 1}, {}))

    def _fail(self, failure: str) -> None:
        """A query of an attempt that was replaced may find its folder gone: then that is the reason."""
        if self._was_replaced():
            self._stop_as_fenced()
        else:
            self._give_up(Misused(failure))

    def _give_up(self, failure: CkptError) -> None:
        self._failure = failure
        self._queries.stop()
        self._end(AttemptStatus.FAILED, str(failure))

    def _finish(self, status: AttemptStatus) -> None:
        """The queries have ended, or end now; a last checkpoint keeps all that they have done.

        Without it, or with a sink that has not committed, the attempt has not ended well, and says so.
        """
        self._queries.stop()
        if (failure := self._find_failure()) is not None:
            self._fail(failure)
            return
        if self._barrier is not None and self._is_ready():
            self._answer(self._barrier)
        self._finish_commit()
        if self._is_ready() and self._committed() != self._last_cut:
            self._take_last()
            self._finish_commit()
        if (left := self._left_over()) is not None and not self._is_fenced.is_set():
            self._give_up(TryAgain(f"Attempt {self.folder.attempt} of {self._claimed.pipeline} has ended, and {left}."))
            return
        self._clear()
        self._end(status, None)

    def _left_over(self) -> str | None:
        """What keeps an attempt from having ended well."""
        if self._taken or self._committing:
            return "not all of its sinks have committed. Start it again: the next attempt finishes that"
        if self._is_ready() and self._committed() != self._last_cut:
            return "its last checkpoint could not be taken. Start it again: the next attempt goes on from its tip"
        return None

    def _finish_commit(self) -> None:
        """Nothing stays staged, unless a target does not answer for long."""
        give_up = time.monotonic() + self._timeout
        while (self._taken or self._committing) and time.monotonic() < give_up and not self._is_fenced.is_set():
            if self._backoff.is_over:
                self._publish()
            time.sleep(_TICK)

    def _clear(self) -> None:
        """A batch that was staged and not committed runs again in the next attempt: nobody needs it."""
        if self._taken is None and self._committing is None and not self._is_fenced.is_set():
            for query in self._queries:
                if query.seat is not None:
                    query.seat.clear(Location(self.folder.location(query.name)).committed)

    def _take_last(self) -> None:
        give_up = time.monotonic() + self._timeout
        while time.monotonic() < give_up and not self._is_fenced.is_set():
            if (ref := self._trigger_last()) is not None and self._answer(ref) is not None:
                return
            time.sleep(1.0)

    def _trigger_last(self) -> Ref | None:
        request = TriggerRequest(
            pipeline=self._claimed.pipeline,
            key=f"last of attempt {self.folder.attempt} {uuid4().hex}",
            requested_by=self._claimed.context.actor,
            reason="the queries have ended",
            is_last=True,
        )
        try:
            checkpoint = self._store.barriers.trigger(request).checkpoint
        except CkptError as error:
            _log.warning("%s", error)
            return None
        return None if checkpoint is None else checkpoint.ref

    def _end(self, status: AttemptStatus, failure: str | None) -> None:
        """An attempt whose end is not accepted was replaced a moment ago: whatever it thinks, it has not ended well."""
        try:
            is_noted = self._claimed.end(status, failure)
        except CkptError as error:
            _log.warning("The end of attempt %d could not be noted: %s", self.folder.attempt, error)
        else:
            if not is_noted and self._failure is None and self._was_replaced():
                self._note_fenced()
        self._has_ended.set()


def _watchman(claimed: Claimed, tell: Tell) -> Watchman:
    return Watchman(claimed.context, claimed.pipeline, tell, every=claimed.conf.alert_every)
