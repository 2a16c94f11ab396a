"""One checkpoint from the agent's side: capture, hold, persist, complete.

Whatever goes wrong with it, the queries run on: the checkpoint fails with a reason, and the next one is taken anew.
"""

import logging
import platform
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from airflow_provider_ckpt.coordinator.complete import complete
from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.coordinator.manifests import load_manifest
from airflow_provider_ckpt.protocol.cut import Graph
from airflow_provider_ckpt.protocol.errors import CkptError, LostRace, Refused, TryAgain
from airflow_provider_ckpt.protocol.metrics import of_driver
from airflow_provider_ckpt.protocol.phases import UNDECIDED
from airflow_provider_ckpt.protocol.reasons import FailureReason
from airflow_provider_ckpt.protocol.records import Capture, CaptureOutcome, Checkpoint, FileRef, Ref
from airflow_provider_ckpt.spark.capturing import Captured, Capturing, HeldPart, Member
from airflow_provider_ckpt.spark.folders import AttemptFolder
from airflow_provider_ckpt.spark.holding import Held, Holder, Known
from airflow_provider_ckpt.spark.notes import write_known
from airflow_provider_ckpt.spark.packing import NewFile
from airflow_provider_ckpt.spark.persisting import Order, Share, patiently
from airflow_provider_ckpt.spark.statsd import Emit, nowhere

_log = logging.getLogger(__name__)

Running = tuple[Graph, dict[str, Member]]  # the queries that there are
RunShares = Callable[[Order, Sequence[Share]], None]  # as Spark tasks


class _Ended(CkptError):
    """The checkpoint has ended otherwise: there is nothing more to do for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What stays the same from one checkpoint of an attempt to the next."""

    context: Context
    folder: AttemptFolder
    known: Known
    run_shares: RunShares
    metastore_url: str
    storage_url: str
    emit: Emit = nowhere
    starting: threading.Lock = field(default_factory=threading.Lock)  # a query is being started, or a cut is taken

    @property
    def attempt(self) -> int:
        return self.folder.attempt


class Checkpointing:
    """Takes one checkpoint of one attempt."""

    def __init__(self, site: Site, ref: Ref, look: Callable[[], Running]) -> None:
        self._site = site
        self._ref = ref
        self._look = look
        self._store = site.context.store
        self._holder = Holder(site.folder.held(ref.id), site.known)

    def run(self) -> Checkpoint | None:
        """The checkpoint as far as it came; None when it has failed or was called off."""
        try:
            return self._take()
        except _Ended as error:
            _log.info("%s: %s", self._ref, error)
        except Exception as error:  # noqa: BLE001 - the pipeline goes on, whatever a checkpoint runs into
            self._fail(error)
        finally:
            self._holder.release()
        return None

    def _take(self) -> Checkpoint:
        began = time.monotonic()
        captured = self._capture_all()
        has_captured = time.monotonic()
        order = Order(
            ref=self._ref,
            attempt=self._site.attempt,
            metastore_url=self._site.metastore_url,
            storage_url=self._site.storage_url,
        )
        shares = [_share(part, each) for each in captured for part in each.parts]
        self._site.run_shares(order, shares)
        times = {"capture": has_captured - began, "persist": time.monotonic() - has_captured}
        self._site.emit(of_driver(self._ref.pipeline, {"checkpoints": 1}, times))
        return patiently(lambda: complete(self._site.context, self._ref))

    def learn(self, checkpoint: Checkpoint) -> None:
        """The next checkpoint builds on this one; on an older one, when this one can not be read back now."""
        try:
            manifest = patiently(lambda: load_manifest(self._site.context, checkpoint))
        except CkptError as error:
            _log.warning("%s is complete, and the next one builds on an older one: %s", self._ref, error)
        else:
            self._site.known.learn(manifest, self._holder.identities)
        write_known(self._site.folder, self._site.known)

    # capture

    def _capture_all(self) -> list[Captured]:
        """No query joins meanwhile: the store would wait for a cut of it, and nobody would take one."""
        began = time.monotonic()
        with self._site.starting:
            running = self._look()
            try:
                return self._capture_in_order(running)
            except _BaseGone as gone:
                self._site.known.forget()
                if gone.is_used:
                    raise
                _log.info("%s: what it would build on is gone; everything is copied anew", self._ref)
                return self._capture_in_order(running)
            finally:
                _log.info("%s captured in %.3f s", self._ref, time.monotonic() - began)

    def _capture_in_order(self, running: Running) -> list[Captured]:
        graph, members = running
        capturing = Capturing(self._site.folder, graph, self._holder, self._is_wanted)
        captured: list[Captured] = []
        for name in graph.capture_order():
            each = capturing.capture(members[name])
            self._record(each, is_first=not captured)
            captured.append(each)
        return captured

    def _record(self, captured: Captured, *, is_first: bool) -> None:
        base = self._site.known.base
        capture = Capture(cut=captured.cut, participants=captured.participants, bases=() if base is None else (base,))
        outcome = patiently(
            lambda: self._store.barriers.capture(self._ref, self._site.attempt, capture, host=platform.node())
        )
        match outcome:
            case CaptureOutcome.BASE_GONE:
                raise _BaseGone(base, is_used=not is_first)
            case CaptureOutcome.FAILED | CaptureOutcome.FENCED | CaptureOutcome.DUPLICATE:
                raise _Ended(f"the cut of {captured.cut.query} came to nothing: {outcome}")

    def _is_wanted(self) -> bool:
        try:
            checkpoint = self._store.checkpoints.get(self._ref)
            return checkpoint.phase in UNDECIDED and self._store.checkpoints.now() < checkpoint.deadline
        except TryAgain:
            return True

    # ending

    def _fail(self, error: Exception) -> None:
        if isinstance(error, LostRace | Refused):
            _log.info("%s: %s", self._ref, error)
            return
        _log.warning("%s failed: %s", self._ref, error)
        self._site.emit(of_driver(self._ref.pipeline, {"declined": 1}, {}))
        actor = f"attempt {self._site.attempt}"
        try:
            self._store.checkpoints.fail(self._ref, FailureReason.DECLINED, str(error), actor=actor)
        except CkptError as again:
            _log.warning("%s could not be called off and will time out: %s", self._ref, again)


class _BaseGone(CkptError):
    """What the capture would build on was let go, or is corrupt.

    :param is_used: the cut of another query stands already, and names files of it: this checkpoint can not be.
    """

    def __init__(self, base: int | None, *, is_used: bool) -> None:
        super().__init__(
            f"it would build on {base}, which went while it was captured; the next checkpoint copies everything anew"
        )
        self.is_used = is_used


def _stored(files: Iterable[Held]) -> Iterator[FileRef]:
    """Each stored file once; of a pack, the members that are meant."""
    names: dict[str, set[str]] = {}
    stored: dict[str, FileRef] = {}
    for file in files:
        if file.stored is not None:
            stored[file.stored.path] = file.stored
            names.setdefault(file.stored.path, set()).add(file.name)
    for path, whole in stored.items():
        yield replace(whole, members=tuple(member for member in whole.members if member.name in names[path]))


def _share(part: HeldPart, captured: Captured) -> Share:
    return Share(
        participant=part.participant,
        stored=tuple(_stored(part.files)),
        new=tuple(
            NewFile(name=file.name, source=str(file.source), size=file.size)
            for file in part.files
            if file.stored is None
        ),
        positions=part.positions,
        timings={"capture": round(captured.seconds, 6)},
        staged=part.staged,
    )
