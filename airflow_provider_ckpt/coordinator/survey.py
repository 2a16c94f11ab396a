"""The survey before a cleanup: what is stored, who names it, and what nobody can explain.

Every stored file is put into one class. It is KEPT when a kept manifest names it, when it belongs to a checkpoint in
flight or to one that the checkpoint in flight builds on, or while it is too young to judge; GARBAGE when its checkpoint
was discarded or failed; an ORPHAN when nobody can explain it. And the other way round: what a kept manifest names and
is not there is missing.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto

from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.coordinator.manifests import load_manifest
from airflow_provider_ckpt.metastore import Inventory
from airflow_provider_ckpt.protocol.errors import Corrupt, Refused
from airflow_provider_ckpt.protocol.paths import decided_path, home, identity_path, manifest_path, owner_of_path
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.records import Checkpoint, Kind, Pipeline, Verdict
from airflow_provider_ckpt.protocol.retention import Retained, RetentionPlan
from airflow_provider_ckpt.protocol.retention import plan as plan_retention
from airflow_provider_ckpt.protocol.timeline import Timeline, current_timeline, newest_planned
from airflow_provider_ckpt.storage.base import Partial

KeepAlive = Callable[[], None]


class Fate(Enum):
    KEPT = auto()
    GARBAGE = auto()
    ORPHAN = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """What the store says is there, read at one revision of the pipeline."""

    pipeline: Pipeline
    now: datetime
    retained: tuple[Checkpoint, ...]  # COMMITTING, COMPLETED, DISCARDING
    discarding: frozenset[int]  # of those: condemned, or about to be
    named: Mapping[int, Mapping[str, int]]  # of the others: checkpoint -> stored path -> size
    timeline: Timeline
    pinned: frozenset[int]
    protected: frozenset[int]  # somebody builds on them, or starts from them
    published: Mapping[str, int]  # for each sink the newest checkpoint that it has committed


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What should go and what should be there, by paths below the storage root."""

    garbage: Mapping[str, str]  # path -> why
    orphans: Mapping[str, str]
    missing: Mapping[int, tuple[str, ...]]  # checkpoint -> what its manifest names and is not there as it should be
    sweeps: tuple[int, ...]  # failed checkpoints whose files are garbage
    partials: tuple[Partial, ...]  # what interrupted writes of ended checkpoints left
    sizes: Mapping[str, int]  # of every stored file


def take_stock(context: Context, pipeline: str, discarding: Collection[int] = ()) -> Holdings:
    """Read the store and the kept manifests: whatever changes later makes plans from this void, by its revision.

    :param discarding: checkpoints that are about to be condemned; what they name does not count any more.
    """
    inventory = context.store.views.inventory(pipeline)
    retained = inventory.retained
    gone = {each.ref.id for each in retained if each.phase is Phase.DISCARDING or each.ref.id in discarding}
    return Holdings(
        pipeline=inventory.pipeline,
        now=inventory.now,
        retained=retained,
        discarding=frozenset(gone),
        named={each.ref.id: _files_named_by(context, each) for each in retained if each.ref.id not in gone},
        timeline=current_timeline(inventory.attempts),
        pinned=inventory.pinned,
        protected=inventory.bases | _start_of(inventory),
        published=inventory.published,
    )


def retention_of(holdings: Holdings) -> RetentionPlan:
    """What retention keeps, with reasons, and what it lets go."""
    completed = [
        Retained(
            id=each.ref.id,
            ended_at=each.ended_at or each.triggered_at,
            is_savepoint=each.kind is Kind.SAVEPOINT,
            is_pinned=each.ref.id in holdings.pinned,
            is_validated=each.verdict is Verdict.VALIDATED,
            is_corrupt=each.verdict is Verdict.CORRUPT,
            is_on_timeline=holdings.timeline.holds(each.attempt, each.ref.id),
            files=holdings.named[each.ref.id],
        )
        for each in holdings.retained
        if each.phase is Phase.COMPLETED and each.ref.id not in holdings.discarding
    ]
    return plan_retention(holdings.pipeline.settings.retention, completed, holdings.now, holdings.protected)


def survey(context: Context, holdings: Holdings, keep_alive: KeepAlive = lambda: None) -> Survey:
    """List the storage and class every file; `keep_alive` is called for each."""
    name = holdings.pipeline.name
    sizes = {}
    for file in context.storage.list(f"{name}/"):
        sizes[file.path] = file.size
        keep_alive()
    partials = tuple(context.storage.partials(f"{name}/"))
    owners = _owners(context, name, [*sizes, *(partial.path for partial in partials)])
    judge = _Judge(holdings, owners)
    return Survey(
        garbage={path: judge.why(path) for path in sizes if judge.fate(path) is Fate.GARBAGE},
        orphans={path: judge.why(path) for path in sizes if judge.fate(path) is Fate.ORPHAN},
        missing=_missing(holdings, sizes),
        sweeps=tuple(each.ref.id for each in owners.values() if judge.is_swept(each)),
        partials=tuple(partial for partial in partials if judge.is_left_over(partial)),
        sizes=sizes,
    )


class _Judge:
    """Decides the fate of each stored path."""

    def __init__(self, holdings: Holdings, owners: Mapping[int, Checkpoint]) -> None:
        self._holdings = holdings
        self._owners = owners
        named = {path for files in holdings.named.values() for path in files}
        self._kept = named | _homes(holdings.retained) | {identity_path(holdings.pipeline.name)}

    def fate(self, path: str) -> Fate:
        if path in self._kept:
            return Fate.KEPT
        owner = self._owner(path)
        if owner is None:
            return Fate.ORPHAN
        fate = self._fate_with(owner)
        return Fate.GARBAGE if fate is Fate.ORPHAN and self._is_copied(owner, path) else fate

    def why(self, path: str) -> str:
        owner = self._owner(path)
        if owner is None:
            return "nobody can explain it"
        return f"no kept manifest names it; checkpoint {owner.ref} is {owner.phase}"

    def is_swept(self, owner: Checkpoint) -> bool:
        return owner.phase is Phase.FAILED and self._fate_with(owner) is Fate.GARBAGE

    def is_left_over(self, partial: Partial) -> bool:
        owner = self._owner(partial.path)
        return owner is not None and not owner.is_in_flight and self._is_old(owner)

    def _owner(self, path: str) -> Checkpoint | None:
        owner = owner_of_path(self._holdings.pipeline.name, path)
        return None if owner is None else self._owners.get(owner)

    def _fate_with(self, owner: Checkpoint) -> Fate:
        if owner.is_in_flight or owner.ref.id in self._holdings.protected:
            return Fate.KEPT
        if owner.phase is Phase.DISCARDED or owner.ref.id in self._holdings.discarding:
            return Fate.GARBAGE
        if not self._is_old(owner):
            return Fate.KEPT
        return Fate.GARBAGE if owner.phase is Phase.FAILED else Fate.ORPHAN

    def _is_copied(self, owner: Checkpoint, path: str) -> bool:
        """What a savepoint was made from: it has copies of its own."""
        return owner.kind is Kind.SAVEPOINT and path.startswith(f"{owner.ref.pipeline}/files/")

    def _is_old(self, owner: Checkpoint) -> bool:
        ended = owner.ended_at or owner.triggered_at
        return self._holdings.now - ended >= self._holdings.pipeline.settings.orphan_grace


def _owners(context: Context, pipeline: str, paths: Iterable[str]) -> dict[int, Checkpoint]:
    ids = {owner for path in paths if (owner := owner_of_path(pipeline, path)) is not None}
    return context.store.checkpoints.some(pipeline, ids)


def _homes(retained: Iterable[Checkpoint]) -> set[str]:
    """Manifests and markers; those of discarded checkpoints go last and by name, not as garbage."""
    homes = (home(each.ref.pipeline, each.ref.id, each.name) for each in retained)
    return {path for each in homes for path in (manifest_path(each), decided_path(each))}


def _missing(holdings: Holdings, sizes: Mapping[str, int]) -> dict[int, tuple[str, ...]]:
    found = {
        id_: tuple(_absence(path, size, sizes.get(path)) for path, size in named.items() if sizes.get(path) != size)
        for id_, named in holdings.named.items()
    }
    return {id_: paths for id_, paths in found.items() if paths}


def _absence(path: str, size: int, found: int | None) -> str:
    if found is None:
        return f"{path} is missing."
    return f"{path} has {found:,} bytes, its manifest says {size:,}."


def _files_named_by(context: Context, checkpoint: Checkpoint) -> dict[str, int]:
    try:
        manifest = load_manifest(context, checkpoint)
    except Corrupt as error:
        return _files_acknowledged(context, checkpoint, error)
    return {manifest.located(file): file.size for file in manifest.files.values()}


def _files_acknowledged(context: Context, checkpoint: Checkpoint, error: Corrupt) -> dict[str, int]:
    """The store knows the files too, unless it was rebuilt."""
    ref = checkpoint.ref
    rows = context.store.acks.rows(ref)
    if not rows:
        raise Refused(
            f"Pipeline {ref.pipeline} is not cleaned up: {error} Without it nobody knows which files {ref} needs. "
            f"Repair it, or let it go with `ckpt cleanup {ref.pipeline} --discard {ref.id}`."
        ) from error
    base = ref.pipeline if checkpoint.kind is Kind.CHECKPOINT else home(ref.pipeline, ref.id, checkpoint.name)
    return {f"{base}/{file.path}": file.size for row in rows if row.ack is not None for file in row.ack.files}


def _start_of(inventory: Inventory) -> frozenset[int]:
    """The checkpoint that the newest planned attempt starts from, until it has completed one of its own."""
    newest = newest_planned(inventory.attempts)
    if newest is None or newest.restored_from is None:
        return frozenset()
    has_own = any(each.attempt == newest.number for each in inventory.retained)
    return frozenset() if has_own else frozenset({newest.restored_from})
