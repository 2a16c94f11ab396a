"""The conformance kit for sinks: puts any implementation through what it must survive, and says what it does wrong.

::

    class Mine:
        is_atomic = True
        def open(self): return MySink("/target")          # a new handle, as a new process would have
        def rows(self, numbers): return spark.createDataFrame([(n,) for n in numbers], "n long")
        def read(self): return [...]                      # the numbers that an outside reader sees

    assert find_faults(Mine, tmp_path) == []

Each trial gets a subject, and so a target, of its own. Crashes are raised inside of the implementation, before each
line of it that a call runs through, one after the other: what a crash can leave behind, the next handle finds.
"""

import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Protocol
from uuid import uuid4

from airflow_provider_ckpt.protocol.codec import JsonObject, canonical
from airflow_provider_ckpt.protocol.errors import Fenced, Refused
from airflow_provider_ckpt.protocol.records import Ref
from airflow_provider_ckpt.spark.sinks.base import Name, Publication, Published, Sink, Slot
from airflow_provider_ckpt.testing.faults import Crashed

_EVERY_LINE = range(2000)  # more than any call runs through
_ROUNDS = 5
_OTHER = 7  # the checkpoint of another pipeline


class Subject(Protocol):
    """A sink under test, with a target of its own."""

    is_atomic: bool  # False: readers may see a publication file by file, as documented

    def open(self) -> Sink:
        """A new handle on the same target."""

    def rows(self, numbers: Sequence[int]) -> Any:
        """A batch with a row for each number, as `stage` wants it; there may be none."""

    def read(self) -> list[int]:
        """The numbers that an outside reader of the target sees now."""


class _Wrong(AssertionError):
    """The sink has done what it must not."""


@dataclass
class Trial:
    """One subject, and what should have been published."""

    subject: Subject
    scratch: Path
    name: Name = field(default_factory=lambda: Name(pipeline=f"trial{uuid4().hex[:8]}", sink="query/sink"))
    expected: Counter[int] = field(default_factory=Counter)
    also: tuple[str, ...] = ()
    lines: range = _EVERY_LINE  # before which it crashes

    def stage(self, batch: int, numbers: Sequence[int], *, attempt: int = 1, sink: Sink | None = None) -> JsonObject:
        run = uuid4().hex
        slot = Slot(name=self.name, attempt=attempt, batch=batch, run=run, scratch=self.scratch / run)
        staged = (sink or self.subject.open()).stage(self.subject.rows(numbers), slot)
        _must(staged.rows == len(numbers), f"stage says {staged.rows} rows of {len(numbers)}")
        canonical(staged.document)
        return staged.document

    def publication(self, id_: int, batches: Sequence[JsonObject], *, attempt: int = 1) -> Publication:
        """One that continues what is committed now."""
        staged = self.subject.open().prepare(batches)
        canonical(staged)
        ref, after = Ref(self.name.pipeline, id_), self.committed()
        return Publication(ref=ref, name=self.name, attempt=attempt, after=after, staged=staged)

    def publish(self, id_: int, numbers: Sequence[int], *, attempt: int = 1) -> Publication:
        """Stage one batch and publish it."""
        publication = self.publication(id_, [self.stage(id_, numbers, attempt=attempt)], attempt=attempt)
        self.commit(publication)
        self.expected.update(numbers)
        return publication

    def commit(self, publication: Publication, sink: Sink | None = None) -> Published:
        return (sink or self.subject.open()).commit(publication)

    def committed(self) -> int | None:
        return self.subject.open().marker(self.name).committed

    def check(self, when: str, *, marker: int | None = None) -> None:
        seen = Counter(self.subject.read())
        _must(not seen - self.expected, f"{when}: {(seen - self.expected).total()} rows too many are visible")
        _must(not self.expected - seen, f"{when}: {(self.expected - seen).total()} rows are missing")
        if marker is not None:
            _must(self.committed() == marker, f"{when}: the marker is {self.committed()}, not {marker}")


Check = Callable[[Trial], None]


def find_faults(
    new_subject: Callable[[], Subject],
    scratch: Path,
    also: Sequence[str] = (),
    checks: Sequence[Check] | None = None,
    lines: range = _EVERY_LINE,
) -> list[str]:
    """Everything that is wrong with a sink, each as a sentence; nothing for one that can be trusted.

    :param also: modules besides the sink's own in which it crashes, too.
    :param checks: some of `CHECKS`, for a target that takes too long for all of them.
    :param lines: crash before these lines only: `range(day % 6, 2000, 6)` comes to every line in six days.
    """
    trials = [(check, Trial(new_subject(), scratch, also=tuple(also), lines=lines)) for check in checks or CHECKS]
    return [fault for check, trial in trials if (fault := _try(check, trial)) is not None]


def _try(check: Check, trial: Trial) -> str | None:
    try:
        check(trial)
    except Exception as error:  # noqa: BLE001 - whatever an implementation raises where it must not is a fault
        kind = "" if isinstance(error, _Wrong) else f"{type(error).__name__}: "
        return f"{check.__name__.replace('_', ' ')}: {kind}{error}"
    return None


# what must hold


def staged_is_invisible(trial: Trial) -> None:
    trial.stage(0, [1, 2, 3])
    trial.check("after stage")
    _must(trial.committed() is None, "the marker is set before anything is published")


def a_publication_is_whole_and_marked(trial: Trial) -> None:
    batches = [trial.stage(0, [1, 2, 3]), trial.stage(1, [4, 5])]
    published = trial.commit(trial.publication(1, batches))
    trial.expected.update([1, 2, 3, 4, 5])
    trial.check("after the commit", marker=1)
    _must(published.rows == sum(trial.expected.values()), f"commit says {published.rows} rows")


def a_batch_without_rows_leaves_nothing_behind(trial: Trial) -> None:
    sink = trial.subject.open()  # one that stays, as a driver's does
    trial.stage(0, [], sink=sink)
    _check_nothing_left(trial)
    trial.commit(trial.publication(1, [trial.stage(1, [1], sink=sink)]), sink)
    trial.expected.update([1])
    trial.stage(2, [], sink=sink)
    _check_nothing_left(trial)
    trial.check("after batches without rows", marker=1)
    waiting = [trial.stage(3, [3], sink=sink), trial.stage(4, [], sink=sink), trial.stage(5, [5], sink=sink)]
    trial.commit(trial.publication(2, [waiting[0], waiting[2]]), sink)
    trial.expected.update([3, 5])
    trial.check("after a batch without rows between others", marker=2)


def the_marker_names_the_newest_attempt(trial: Trial) -> None:
    trial.publish(1, [1])
    found = trial.subject.open().recover(trial.name, 3).attempt
    _must(found == 3, f"after attempt 3 has taken over, recover says {found}")  # noqa: PLR2004
    found = trial.subject.open().marker(trial.name).attempt
    _must(found == 3, f"after attempt 3 has taken over, the marker says {found}")  # noqa: PLR2004


def a_target_that_stands_elsewhere_is_left_as_it_is(trial: Trial) -> None:
    """A commit continues what its checkpoint saw: a target that is behind, or beyond, would lose or double rows."""
    trial.publish(1, [1])
    trial.publish(2, [2])
    kept = trial.publication(4, [trial.stage(4, [4])])
    for after in (None, 1, 3):
        is_refused = _refuses(lambda a=after: trial.commit(replace(kept, after=a)), Refused)  # type: ignore[misc]
        trial.check(f"after a commit that continues {after or 'nothing'}, and not 2", marker=2)
        _must(is_refused, f"a commit that continues {after or 'nothing'} was not refused by a target that is at 2")
    trial.commit(kept)
    trial.expected.update([4])
    trial.check("after a commit that was refused elsewhere, and continues what is there", marker=4)


def a_checkpoint_of_a_branch_left_behind_is_not_committed(trial: Trial) -> None:
    for id_ in (1, 2):
        trial.publish(id_, [id_])
    left_behind = trial.publication(3, [trial.stage(3, [3])])
    sink = trial.subject.open()
    sink.recover(trial.name, 2)
    if 1 not in sink.history(trial.name):
        return
    sink.roll_back(trial.name, 2, 1)
    trial.expected.subtract([2])
    trial.expected += Counter()
    is_refused = _refuses(lambda: trial.commit(replace(left_behind, attempt=2)), Refused)
    trial.check("after a commit of what a roll back has left behind", marker=1)
    _must(is_refused, "what a roll back has left behind was committed")
    if 2 not in sink.history(trial.name):  # noqa: PLR2004
        return
    sink.roll_back(trial.name, 2, 2)
    trial.expected.update([2])
    trial.check("after the target went forward again", marker=2)
    trial.commit(replace(left_behind, attempt=2))
    trial.expected.update([3])
    trial.check("after a commit that continues what the target went forward to", marker=3)


def a_second_commit_changes_nothing(trial: Trial) -> None:
    sink = trial.subject.open()
    publication = trial.publication(1, [trial.stage(0, [1, 2])])
    trial.commit(publication, sink)
    trial.expected.update([1, 2])
    trial.commit(publication, sink)
    trial.check("after a second commit through the same handle", marker=1)
    trial.commit(publication)
    trial.check("after a third commit through a fresh handle", marker=1)


def an_older_checkpoint_is_not_published_after_a_newer_one(trial: Trial) -> None:
    older = trial.publication(1, [trial.stage(0, [1])])
    stale = trial.subject.open()
    stale.marker(trial.name)
    trial.publish(2, [2])
    _refuses(lambda: trial.commit(older, stale))
    trial.check("after a late commit of an older checkpoint", marker=2)


def a_batch_that_runs_again_replaces_what_it_staged(trial: Trial) -> None:
    trial.stage(0, [1, 2])
    trial.commit(trial.publication(1, [trial.stage(0, [1, 2])]))
    trial.expected.update([1, 2])
    trial.check("after a batch was staged twice", marker=1)


def a_failed_checkpoint_rolls_into_the_next(trial: Trial) -> None:
    first = trial.stage(0, [1])
    trial.publication(1, [first])  # prepared, and its checkpoint failed
    trial.commit(trial.publication(2, [first, trial.stage(1, [2])]))
    trial.expected.update([1, 2])
    trial.check("after the next checkpoint", marker=2)


def a_crash_anywhere_in_a_commit_is_finished_by_the_next(trial: Trial) -> None:
    trial.subject.open().recover(trial.name, 1)
    for line in trial.lines:
        id_ = line + 1
        publication = trial.publication(id_, [trial.stage(id_, [id_ * 2, id_ * 2 + 1])])
        sink = trial.subject.open()
        has_crashed = _crash_at(trial, line, sink, lambda p=publication, s=sink: trial.commit(p, s))  # type: ignore[misc]
        _check_half(trial, [id_ * 2, id_ * 2 + 1])
        trial.commit(publication)
        trial.expected.update([id_ * 2, id_ * 2 + 1])
        if not has_crashed or line % 10 == 0:
            trial.check(f"after a crash before line {line} of commit, and another commit", marker=id_)
        if not has_crashed:
            return


def a_crash_anywhere_in_recover_is_harmless(trial: Trial) -> None:
    trial.publish(1, [1])
    for line in trial.lines:
        sink = trial.subject.open()
        has_crashed = _crash_at(trial, line, sink, lambda n=line, s=sink: s.recover(trial.name, n + 2))  # type: ignore[misc]
        found = trial.subject.open().recover(trial.name, line + 2)
        _must(found.committed == 1, f"after a crash before line {line} of recover the marker is {found.committed}")
        if not has_crashed:
            break
    trial.check("after crashes in recover", marker=1)


def a_crash_anywhere_in_stage_is_made_good_by_the_next_run(trial: Trial) -> None:
    batches: dict[int, JsonObject] = {}
    for line in trial.lines:
        sink = trial.subject.open()
        has_crashed = _crash_at(trial, line, sink, lambda n=line, s=sink: trial.stage(n, [n], sink=s))  # type: ignore[misc]
        trial.check(f"after a crash before line {line} of stage")
        batches[line] = trial.stage(line, [line])
        if not has_crashed:
            break
    trial.commit(trial.publication(1, list(batches.values())))
    trial.expected.update(batches.keys())
    trial.check("after crashes in stage, and a commit", marker=1)
    trial.subject.open().discard(trial.name, 2, [])
    _check_nothing_left(trial)


def a_crash_anywhere_in_discard_is_made_good_by_the_next(trial: Trial) -> None:
    kept = trial.stage(0, [0])
    for line in trial.lines:
        attempt, sink = line + 2, trial.subject.open()
        trial.stage(line + 1, [line + 1], attempt=attempt - 1)
        discard = partial(sink.discard, trial.name, attempt, [kept])
        has_crashed = _crash_at(trial, line, sink, discard)
        trial.subject.open().discard(trial.name, attempt, [kept])
        trial.check(f"after a crash before line {line} of discard")
        if not has_crashed:
            break
    trial.commit(trial.publication(1, [kept], attempt=attempt))
    trial.expected.update([0])
    trial.check("after crashes in discard, and a commit of what was adopted", marker=1)
    _check_nothing_left(trial)


def a_crash_anywhere_in_a_roll_back_is_made_good_by_the_next(trial: Trial) -> None:
    trial.publish(1, [1])
    for line in trial.lines:
        attempt, id_, sink = line + 2, line + 2, trial.subject.open()
        trial.publish(id_, [id_], attempt=attempt - 1)
        sink.recover(trial.name, attempt)
        if 1 not in sink.history(trial.name):
            return
        has_crashed = _crash_at(trial, line, sink, partial(sink.roll_back, trial.name, attempt, 1))
        trial.expected.subtract([id_])
        trial.expected += Counter()
        _check_half(trial, [id_])
        if trial.subject.open().recover(trial.name, attempt).committed != 1:
            trial.subject.open().roll_back(trial.name, attempt, 1)
        trial.check(f"after a crash before line {line} of roll_back, and another roll_back", marker=1)
        if not has_crashed:
            return


def a_fenced_attempt_can_not_publish(trial: Trial) -> None:
    trial.publish(1, [1])
    stale = trial.subject.open()
    stale.marker(trial.name)
    publications = [trial.publication(2, [trial.stage(5, [2])]) for _ in range(2)]
    trial.subject.open().recover(trial.name, 2)
    for sink, publication in zip((stale, trial.subject.open()), publications, strict=True):
        is_refused = _refuses(lambda s=sink, p=publication: trial.commit(p, s), Fenced)  # type: ignore[misc]
        trial.check("after a fenced attempt tried to publish", marker=1)
        _must(is_refused, "a fenced attempt was not refused")


def a_fenced_attempt_can_not_recover(trial: Trial) -> None:
    trial.publish(1, [1])
    trial.subject.open().recover(trial.name, 3)
    older = trial.subject.open()
    _must(_refuses(lambda: older.recover(trial.name, 2), Fenced), "an older attempt could take over from a newer one")


def two_committers_at_once_publish_once(trial: Trial) -> None:
    trial.publish(1, [1])
    for round_ in range(_ROUNDS):
        id_ = round_ + 2
        publication = trial.publication(id_, [trial.stage(id_, [id_ * 10, id_ * 10 + 1])])
        sinks = [trial.subject.open(), trial.subject.open()]
        if round_ % 2:  # stale handles: each has seen the target before
            for sink in sinks:
                sink.marker(trial.name)
        _at_once([lambda s=sink, p=publication: trial.commit(p, s) for sink in sinks])  # type: ignore[misc]
        trial.commit(publication)
        trial.expected.update([id_ * 10, id_ * 10 + 1])
        trial.check(f"after two committers at once, round {round_}", marker=id_)


def two_sinks_share_a_target(trial: Trial) -> None:
    other = Trial(trial.subject, trial.scratch)
    mine = trial.publication(1, [trial.stage(0, [1])])
    others = other.publication(_OTHER, [other.stage(0, [2])])
    _at_once([lambda: trial.commit(mine), lambda: other.commit(others)])
    trial.commit(mine)
    other.commit(others)
    trial.expected.update([1, 2])
    trial.check("after two sinks have published into one target", marker=1)
    _must(other.committed() == _OTHER, f"the other sink's marker is {other.committed()}, not {_OTHER}")


def what_nobody_adopts_is_discarded(trial: Trial) -> None:
    kept, gone = trial.stage(0, [1]), trial.stage(1, [2])
    sink = trial.subject.open()
    sink.recover(trial.name, 2)
    sink.discard(trial.name, 2, [kept])
    lost = trial.publication(1, [gone], attempt=2)
    _must(_refuses(lambda: trial.commit(lost)), "a commit went well although what it publishes was discarded")
    trial.check("after a discarded batch was to be published")
    trial.commit(trial.publication(2, [kept], attempt=2))
    trial.expected.update([1])
    trial.check("after an adopted batch was published", marker=2)
    _check_nothing_left(trial)


def a_roll_back_takes_back_what_came_after(trial: Trial) -> None:
    for id_ in (1, 2, 3):
        trial.publish(id_, [id_])
    old = trial.publication(4, [trial.stage(9, [4])])
    sink = trial.subject.open()
    sink.recover(trial.name, 2)
    if 1 not in sink.history(trial.name):
        return
    sink.roll_back(trial.name, 2, 1)
    trial.expected.subtract([2, 3])
    trial.expected += Counter()
    trial.check("after a roll back to 1", marker=1)
    _must(_refuses(lambda: trial.commit(old), Fenced), "an attempt from before the roll back was not refused")
    trial.publish(5, [5], attempt=2)
    trial.check("after the first publication that follows a roll back", marker=5)


CHECKS: tuple[Check, ...] = (
    staged_is_invisible,
    a_publication_is_whole_and_marked,
    a_batch_without_rows_leaves_nothing_behind,
    the_marker_names_the_newest_attempt,
    a_target_that_stands_elsewhere_is_left_as_it_is,
    a_checkpoint_of_a_branch_left_behind_is_not_committed,
    a_second_commit_changes_nothing,
    an_older_checkpoint_is_not_published_after_a_newer_one,
    a_batch_that_runs_again_replaces_what_it_staged,
    a_failed_checkpoint_rolls_into_the_next,
    a_crash_anywhere_in_a_commit_is_finished_by_the_next,
    a_crash_anywhere_in_recover_is_harmless,
    a_crash_anywhere_in_stage_is_made_good_by_the_next_run,
    a_crash_anywhere_in_discard_is_made_good_by_the_next,
    a_crash_anywhere_in_a_roll_back_is_made_good_by_the_next,
    a_fenced_attempt_can_not_publish,
    a_fenced_attempt_can_not_recover,
    two_committers_at_once_publish_once,
    two_sinks_share_a_target,
    what_nobody_adopts_is_discarded,
    a_roll_back_takes_back_what_came_after,
)


# means


def _must(is_so: object, otherwise: str) -> None:
    if not is_so:
        raise _Wrong(otherwise)


def _refuses(call: Callable[[], object], kind: type[Exception] = Exception) -> bool:
    try:
        call()
    except kind:
        return True
    return False


def _check_half(trial: Trial, numbers: Sequence[int]) -> None:
    """After a crash readers see nothing or all of a publication; nothing twice in any case."""
    seen = Counter(trial.subject.read()) - trial.expected
    whole = Counter(numbers)
    _must(not seen - whole, "after a crash a row is visible twice")
    _must(not trial.subject.is_atomic or seen in (Counter(), whole), "after a crash half of a publication is visible")


def _check_nothing_left(trial: Trial) -> None:
    left = list(trial.subject.open().leftovers(trial.name))
    _must(not left, f"{len(left)} things are still staged after everything was published or discarded")


def _at_once(calls: Sequence[Callable[[], object]]) -> None:
    """At the same moment, in threads; one that loses the race may raise what it likes, once."""
    gate = threading.Barrier(len(calls))

    def run(call: Callable[[], object]) -> None:
        gate.wait()
        with suppress(Exception):
            call()

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _crash_at(trial: Trial, line: int, sink: Sink, call: Callable[[], object]) -> bool:
    """Whether it crashed: False when the call had fewer lines."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # who crashes closes nothing
        try:
            with _crashing(line, _files_of(sink, trial.also)):
                call()
        except Crashed:
            return True
    return False


def _files_of(sink: Sink, also: Sequence[str]) -> frozenset[str]:
    """The files of the implementation, also of what it inherits, but for the interface itself."""
    modules = [
        sys.modules[kind.__module__] for kind in type(sink).__mro__ if issubclass(kind, Sink) and kind is not Sink
    ]
    modules += [sys.modules[name] for name in also]
    return frozenset(module.__file__ for module in modules if module.__file__)


@contextmanager
def _crashing(line: int, files: frozenset[str]) -> Iterator[None]:
    seen: set[tuple[str, int]] = set()  # each line counts once, however often it runs

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_filename not in files:
            return None
        if event == "line":
            seen.add((frame.f_code.co_filename, frame.f_lineno))
            if len(seen) > line:
                sys.settrace(None)
                raise Crashed
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)
