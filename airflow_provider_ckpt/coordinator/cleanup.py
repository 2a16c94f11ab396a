"""Cleanup: lets go what retention does not keep, and finds what nobody can explain.

Checkpoints are condemned in the store first, then their files; only then anything is deleted: the `decided` marker
first, so that a half-deleted checkpoint can never be resurrected, then the data, the manifest last. A file that will
not go is reported and tried again next time, and stops nothing else. The lease keeps triggers away; between two batches
it is renewed, and when a waiting trigger has taken it back the cleanup stops there.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta

from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.coordinator.identity import check_storage
from airflow_provider_ckpt.coordinator.keeping import Keeper
from airflow_provider_ckpt.coordinator.survey import Holdings, Survey, retention_of, survey, take_stock
from airflow_provider_ckpt.protocol.errors import CkptError, LeaseLost, LostRace, NotFound, Refused, TryAgain
from airflow_provider_ckpt.protocol.paths import decided_path, home, manifest_path, owner_of_path
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.records import Checkpoint, Lease, Ref, Verdict
from airflow_provider_ckpt.storage.base import Partial

OnDeleted = Callable[[int, int], None]  # how many of how many files are gone
_TRIMS = 100  # batches of the history
_PLANS = 5  # how often a plan is drawn up anew because somebody changed something meanwhile


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupReport:
    """What a cleanup did, or would do."""

    kept: Mapping[int, str]  # checkpoint -> why
    discarded: tuple[int, ...]
    deleted: tuple[str, ...]
    deleted_bytes: int
    quarantined: Mapping[str, str]  # path -> why; deleted by a later cleanup, unless somebody explains it
    missing: Mapping[int, tuple[str, ...]]  # checkpoint -> what is not there as it should be
    failed: Mapping[str, str]  # path -> why it could not be deleted
    trimmed: int = 0  # rows of the history that went: events, failed and discarded checkpoints, attempts
    has_yielded: bool = False  # a waiting trigger took the lease back; the next cleanup goes on


def plan_cleanup(context: Context, pipeline: str, discard: Collection[int] = ()) -> CleanupReport:
    """What a cleanup would do now; changes nothing."""
    check_storage(context, pipeline)
    _check_discards(context, pipeline, discard)
    holdings = take_stock(context, pipeline, discarding=discard)
    _refuse_needed(holdings, discard)
    retention = retention_of(holdings)
    going = frozenset(retention.discard) | holdings.discarding
    named = {id_: files for id_, files in holdings.named.items() if id_ not in going}
    found = survey(context, replace(holdings, discarding=going, named=named))
    condemned = {each.path for each in context.store.files.condemned(pipeline)}
    due = set(context.store.files.due(pipeline))
    deleted = sorted(set(found.garbage) | due)
    return CleanupReport(
        kept=retention.keep,
        discarded=tuple(sorted(going)),
        deleted=tuple(deleted),
        deleted_bytes=sum(found.sizes.get(path, 0) for path in deleted),
        quarantined={path: why for path, why in found.orphans.items() if path not in condemned},
        missing=found.missing,
        failed={},
    )


def cleanup(
    context: Context,
    pipeline: str,
    *,
    discard: Collection[int] = (),
    batch: int = 50,
    on_deleted: OnDeleted = lambda done, total: None,
) -> CleanupReport:
    """Do it.

    :param discard: checkpoints or savepoints that a person wants to go, whatever retention says. Pins still hold.
    :param batch: how many files are deleted between two looks at the lease.
    :raises Refused: when one of `discard` is pinned or needed, or the storage is not the pipeline's own.
    :raises TryAgain: while a checkpoint is in flight, or a restore or another cleanup works.
    """
    check_storage(context, pipeline)
    _check_discards(context, pipeline, discard)
    lease = context.store.leases.acquire_cleanup(pipeline, owner=context.actor, token=context.new_token())
    try:
        return _Cleanup(context, lease, batch, on_deleted).run(discard)
    finally:
        context.store.leases.release(lease)


def _check_discards(context: Context, pipeline: str, discard: Collection[int]) -> None:
    pinned = {pin.ref.id: pin for pin in context.store.pins.of(pipeline)}
    for id_ in discard:
        checkpoint = context.store.checkpoints.get(Ref(pipeline, id_))
        if checkpoint.phase not in (Phase.COMPLETED, Phase.DISCARDING):
            raise NotFound(f"Checkpoint {checkpoint.ref} is {checkpoint.phase}; only completed ones can be discarded.")
        if id_ in pinned:
            pin = pinned[id_]
            raise Refused(f"Checkpoint {checkpoint.ref} is pinned by {pin.owner}: {pin.reason}. Unpin it first.")


def _refuse_needed(holdings: Holdings, discard: Collection[int]) -> None:
    """Nobody can wish away what an attempt starts from, what the sinks stand at, or the last good checkpoint."""
    name = holdings.pipeline.name
    for id_ in sorted(set(discard) & holdings.protected):
        raise Refused(f"Checkpoint {name}/{id_} stays: the current attempt starts from it. Let it complete one first.")
    good = {each.ref.id for each in holdings.retained if _is_good(each, holdings)}
    if good and good <= holdings.discarding:
        raise Refused(
            f"Checkpoint {name}/{max(good)} stays: it is the last good one of the timeline, and a failure would lose "
            f"everything. Take another one first with `ckpt trigger {name}`, then say "
            f"`ckpt cleanup {name} --discard {max(good)}`."
        )
    for sink, newest in sorted(holdings.published.items()):
        if newest in good & holdings.discarding and max(good - holdings.discarding) < newest:
            raise Refused(
                f"Checkpoint {name}/{newest} stays: sink {sink} stands at it, and what is older can not be restored "
                f"without writing rows twice. Take another one first with `ckpt trigger {name}`, then say "
                f"`ckpt cleanup {name} --discard {newest}`."
            )


def _is_good(checkpoint: Checkpoint, holdings: Holdings) -> bool:
    return checkpoint.is_restorable and holdings.timeline.holds(checkpoint.attempt, checkpoint.ref.id)


class _Cleanup:
    """One cleanup under one lease; what it has done so far is known at every moment."""

    def __init__(self, context: Context, lease: Lease, batch: int, on_deleted: OnDeleted) -> None:
        self._context = context
        self._lease = lease
        self._keeper = Keeper(context, lease)
        self._batch = batch
        self._on_deleted = on_deleted
        self._kept: Mapping[int, str] = {}
        self._discarded: tuple[int, ...] = ()
        self._found: Survey | None = None
        self._deleted: list[str] = []
        self._failed: dict[str, str] = {}
        self._trimmed = 0

    def run(self, discard: Collection[int]) -> CleanupReport:
        try:
            self._until_valid(lambda: self._condemn_checkpoints(discard))
            holdings = self._until_valid(self._condemn_files)
            self._unmark(holdings)
            self._delete_files(holdings)
            self._forget_checkpoints(holdings)
            self._trim_history()
        except LeaseLost:
            return self._report(has_yielded=True)
        return self._report(has_yielded=False)

    def _until_valid(self, step: Callable[[], Holdings]) -> Holdings:
        """Plan and condemn; plan again when somebody changed something in between."""
        for _ in range(_PLANS):
            with suppress(LostRace):
                return step()
            self._context.store.leases.renew(self._lease)
        raise TryAgain(f"Pipeline {self._lease.pipeline} changes too fast to be cleaned up now. Try again later.")

    def _condemn_checkpoints(self, discard: Collection[int]) -> Holdings:
        holdings = take_stock(self._context, self._lease.pipeline, discarding=discard)
        _refuse_needed(holdings, discard)
        retention = retention_of(holdings)
        wanted = [*retention.discard, *(each.ref.id for each in holdings.retained if _is_wanted_gone(each, discard))]
        gone = self._context.store.checkpoints.discard(
            wanted, self._lease, revision=holdings.pipeline.revision, actor=self._context.actor
        )
        self._kept, self._discarded = retention.keep, self._discarded + gone
        if len(gone) < len(wanted):
            raise LostRace(f"The cleanup of {self._lease.pipeline} was overtaken: its plan is out of date.")
        return holdings

    def _condemn_files(self) -> Holdings:
        holdings = take_stock(self._context, self._lease.pipeline)
        found = self._found = survey(self._context, holdings, self._keeper.touch)
        self._judge_missing(holdings, found)
        condemn, revision = self._context.store.files.condemn, holdings.pipeline.revision
        if found.garbage or found.sweeps:
            condemn(found.garbage, self._lease, revision=revision, after=timedelta(0), sweeps=found.sweeps)
        if found.orphans:
            condemn(found.orphans, self._lease, revision=revision, after=holdings.pipeline.settings.quarantine)
        return holdings

    def _judge_missing(self, holdings: Holdings, found: Survey) -> None:
        """Mark checkpoints that lack files; that changes what retention keeps, so it is planned anew."""
        unmarked = [
            each for each in holdings.retained if each.ref.id in found.missing and each.verdict is not Verdict.CORRUPT
        ]
        for each in unmarked:
            detail = " ".join(found.missing[each.ref.id][:5])
            self._context.store.checkpoints.judge(each.ref, Verdict.CORRUPT, detail, actor=self._context.actor)
        if unmarked:
            raise LostRace(f"Checkpoints of {self._lease.pipeline} were found corrupt: plan again.")

    def _unmark(self, holdings: Holdings) -> None:
        for each in _discarding(holdings):
            self._delete(decided_path(_home(each)))

    def _delete_files(self, holdings: Holdings) -> None:
        store, pipeline = self._context.store, self._lease.pipeline
        named = {path for files in holdings.named.values() for path in files}
        due = store.files.due(pipeline)
        store.files.forget(pipeline, [path for path in due if path in named])
        doomed = [path for path in due if path not in named]
        for batch in _batches(doomed, self._batch):
            store.leases.renew(self._lease)
            gone = [path for path, ok in zip(batch, self._context.each(self._delete, batch), strict=True) if ok]
            store.files.forget(pipeline, gone)
            self._deleted += gone
            self._on_deleted(len(self._deleted), len(doomed))
        for partial in self._found.partials if self._found else ():
            self._discard(partial)

    def _forget_checkpoints(self, holdings: Holdings) -> None:
        """Those whose files are all gone lose their manifest, then their rows."""
        left = set(self._failed) | {each.path for each in self._context.store.files.condemned(self._lease.pipeline)}
        for each in _discarding(holdings):
            if not any(owner_of_path(each.ref.pipeline, path) == each.ref.id for path in left) and self._delete(
                manifest_path(_home(each))
            ):
                self._context.store.checkpoints.forget(each.ref, actor=self._context.actor)

    def _trim_history(self) -> None:
        """In batches; what is left after many of them goes with the next cleanup."""
        for _ in range(_TRIMS):
            trimmed = self._context.store.history.trim(self._lease)
            self._trimmed += trimmed
            if not trimmed:
                return
            self._context.store.leases.renew(self._lease)

    def _delete(self, path: str) -> bool:
        """Whether the file is gone; a failure is kept for the report."""
        try:
            self._context.storage.delete(path)
        except CkptError as error:
            self._failed[path] = str(error)
        return path not in self._failed

    def _discard(self, partial: Partial) -> None:
        try:
            self._context.storage.discard(partial)
        except CkptError as error:
            self._failed[partial.token] = str(error)

    def _report(self, *, has_yielded: bool) -> CleanupReport:
        sizes = self._found.sizes if self._found else {}
        return CleanupReport(
            kept=self._kept,
            discarded=self._discarded,
            deleted=tuple(self._deleted),
            deleted_bytes=sum(sizes.get(path, 0) for path in self._deleted),
            quarantined=self._found.orphans if self._found else {},
            missing=self._found.missing if self._found else {},
            failed=self._failed,
            trimmed=self._trimmed,
            has_yielded=has_yielded,
        )


def _is_wanted_gone(checkpoint: Checkpoint, discard: Collection[int]) -> bool:
    return checkpoint.ref.id in discard and checkpoint.phase is Phase.COMPLETED


def _discarding(holdings: Holdings) -> list[Checkpoint]:
    return [each for each in holdings.retained if each.phase is Phase.DISCARDING]


def _home(checkpoint: Checkpoint) -> str:
    return home(checkpoint.ref.pipeline, checkpoint.ref.id, checkpoint.name)


def _batches(paths: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (paths[start : start + size] for start in range(0, len(paths), size))
