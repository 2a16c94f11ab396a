"""Becoming the driver of an attempt: find or plan it, claim it, and lay out where it starts."""

import logging
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from uuid import uuid4

from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.coordinator.manifests import load_manifest
from airflow_provider_ckpt.coordinator.restore import RestoreOptions, living_attempt, restore
from airflow_provider_ckpt.metastore import open_metastore
from airflow_provider_ckpt.protocol.codec import JsonObject
from airflow_provider_ckpt.protocol.cut import Graph
from airflow_provider_ckpt.protocol.errors import Corrupt, Misused, NotFound, Refused
from airflow_provider_ckpt.protocol.manifest import Manifest
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.records import Attempt, AttemptStatus, DesiredState, Ref, Rung
from airflow_provider_ckpt.protocol.timeline import current_timeline
from airflow_provider_ckpt.spark.conf import AgentConf, margin_of
from airflow_provider_ckpt.spark.folders import AttemptFolder
from airflow_provider_ckpt.spark.heart import Heart
from airflow_provider_ckpt.spark.holding import Known
from airflow_provider_ckpt.spark.laying_out import lay_out_checkpoint, lay_out_tip
from airflow_provider_ckpt.spark.notes import (
    Descriptions,
    read_descriptions,
    read_known,
    write_description,
    write_known,
)
from airflow_provider_ckpt.spark.progress import shown_progress
from airflow_provider_ckpt.spark.sinks.ledger import Ledger
from airflow_provider_ckpt.spark.sinks.opening import reach_sinks
from airflow_provider_ckpt.spark.streaming.location import Location
from airflow_provider_ckpt.spark.tips import tip_checker
from airflow_provider_ckpt.storage.opening import open_storage

_log = logging.getLogger("airflow_provider_ckpt.spark")
_TICK = 0.5  # seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where an attempt starts: the queries it goes on with, as they were."""

    graph: Graph = field(default_factory=lambda: Graph(()))
    described: Descriptions = field(default_factory=dict)
    decided: Manifest | None = None  # the newest decided checkpoint that the attempt continues

    def floor_of(self, query: str) -> int:
        """The newest batch of a query that a decided checkpoint has; -1 before the first."""
        cuts = () if self.decided is None else self.decided.cuts
        committed = next((cut.properties.get("committed") for cut in cuts if cut.query == query), None)
        return committed if isinstance(committed, int) else -1

    def described_of(self, query: str) -> JsonObject:
        return self.described.get(query, {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """The one driver of an attempt."""

    context: Context
    conf: AgentConf
    attempt: Attempt
    claim: str
    folder: AttemptFolder
    origin: Origin
    known: Known

    @property
    def pipeline(self) -> str:
        return self.attempt.pipeline

    @property
    def driver(self) -> tuple[str, int, str]:
        return self.pipeline, self.attempt.number, self.claim

    def end(self, status: AttemptStatus, failure: str | None = None) -> bool:
        return self.context.store.attempts.end(
            self.pipeline, self.attempt.number, status, actor=self.context.actor, failure=failure
        )


def claim_attempt(conf: AgentConf, pipeline: str, application_id: str) -> Claimed:
    """Plan the next attempt unless one waits, claim it, and lay it out.

    :raises Refused: when the pipeline is meant to be stopped, or a living driver has it.
    :raises LostRace: when another driver was faster.
    """
    store = open_metastore(conf.places.metastore_url)
    try:
        context = Context(store=store, storage=open_storage(conf.places.storage_url), actor=application_id)
        return _claim(context, conf, pipeline, application_id)
    except BaseException:
        store.close()
        raise


def _claim(context: Context, conf: AgentConf, pipeline: str, application_id: str) -> Claimed:
    _refuse_if_stopped(context, pipeline)
    margin_of(conf, context.store.pipelines.get(pipeline).settings.attempt_ttl.total_seconds())  # before it is claimed
    number = conf.attempt if conf.attempt is not None else _next_attempt(context, conf, pipeline)
    folder = AttemptFolder(work=conf.places.work, pipeline=pipeline, attempt=number)
    claim = uuid4().hex
    attempt = context.store.attempts.claim(
        pipeline, number, claim, Graph(()), application_id=application_id, host=platform.node()
    )
    _log.info("Attempt %d of %s is claimed; it starts from: %s.", number, pipeline, _start_of(attempt))
    try:
        with _beating(context, conf, (pipeline, number, claim)):
            origin, known = _lay_out(context, attempt, folder)
    except BaseException as error:
        context.store.attempts.end(pipeline, number, AttemptStatus.FAILED, actor=application_id, failure=str(error))
        raise
    return Claimed(
        context=replace(context, actor=f"attempt {number} ({application_id})"),
        conf=conf,
        attempt=attempt,
        claim=claim,
        folder=folder,
        origin=origin,
        known=known,
    )


@contextmanager
def _beating(context: Context, conf: AgentConf, driver: tuple[str, int, str]) -> Iterator[None]:
    """A large checkpoint takes long to download: without a beat a restore would take this driver for dead."""
    ttl = context.store.pipelines.get(driver[0]).settings.attempt_ttl.total_seconds()
    heart = Heart(
        context.store, driver, poll=conf.poll, ttl=ttl, margin=0, on_beat=lambda beat: None, on_silence=lambda: None
    )
    heart.start()
    try:
        yield
    finally:
        heart.stop()


def _refuse_if_stopped(context: Context, pipeline: str) -> None:
    if context.store.pipelines.get(pipeline).desired_state is DesiredState.STOPPED:
        raise Refused(
            f"Pipeline {pipeline} is meant to be stopped. Say `ckpt pipelines {pipeline} --start`, and start the "
            "driver again."
        )


def _next_attempt(context: Context, conf: AgentConf, pipeline: str) -> int:
    """The one that a restore has planned; else this driver restores by itself."""
    current = context.store.pipelines.get(pipeline).current_attempt
    if current is not None:
        attempt = context.store.attempts.get(pipeline, current)
        if attempt.status is AttemptStatus.PLANNED:
            return current
    _wait_for_another_beat(context, pipeline)
    options = RestoreOptions(committers=reach_sinks(context, pipeline), tip_damage=tip_checker(conf.places.work))
    restored = restore(context, pipeline, options, on_wait=_say_what_is_waited_for)
    return restored.attempt.number


def _wait_for_another_beat(context: Context, pipeline: str) -> None:
    """A driver that died a moment ago looks alive for its time to live: whether it beats again tells."""
    seen = living_attempt(context, pipeline)
    if seen is not None:
        _log.warning(
            "Attempt %d of %s was alive a moment ago; waiting to see whether it still is.", seen.number, pipeline
        )
    living = seen
    while living is not None and seen is not None and living.heartbeat_at == seen.heartbeat_at:
        context.sleep(_TICK)
        living = living_attempt(context, pipeline)


def _say_what_is_waited_for(seconds: float) -> None:
    _log.warning("Waiting for the old attempt to end by itself: %.0f s.", seconds)


def _start_of(attempt: Attempt) -> str:
    match attempt.rung:
        case Rung.CHECKPOINT:
            return f"checkpoint {attempt.pipeline}/{attempt.restored_from}"
        case Rung.TIP:
            return f"the tip of attempt {attempt.parent}"
        case Rung.FRESH:
            return "nothing"


def _lay_out(context: Context, attempt: Attempt, folder: AttemptFolder) -> tuple[Origin, Known]:
    if folder.root.exists():
        raise Misused(
            f"{folder.root} is there already: it was made for another metastore, or by another driver. Remove it, or "
            "give this pipeline another work folder (CKPT_WORK, spark.ckpt.work); then start the driver again."
        )
    folder.root.mkdir(parents=True)
    match attempt.rung:
        case Rung.CHECKPOINT:
            return _from_checkpoint(context, attempt, folder)
        case Rung.TIP:
            return _from_tip(context, attempt, folder)
        case Rung.FRESH:
            return Origin(), Known()


def _from_checkpoint(context: Context, attempt: Attempt, folder: AttemptFolder) -> tuple[Origin, Known]:
    if attempt.restored_from is None:
        raise NotFound(f"Attempt {attempt.number} of {attempt.pipeline} does not say which checkpoint it starts from.")
    checkpoint = context.store.checkpoints.get(Ref(attempt.pipeline, attempt.restored_from))
    manifest = load_manifest(context, checkpoint)
    total = sum(file.size for file in manifest.files.values())
    with shown_progress(f"Laying out {manifest.ref}", total) as on_file:
        identities = lay_out_checkpoint(context, manifest, folder, on_file)
    known = Known()
    known.learn(manifest, identities)
    origin = Origin(
        graph=manifest.graph,
        described={cut.query: cut.properties for cut in manifest.cuts},
        decided=manifest,
    )
    return origin, known


def _from_tip(context: Context, attempt: Attempt, folder: AttemptFolder) -> tuple[Origin, Known]:
    if attempt.parent is None:
        raise NotFound(f"Attempt {attempt.number} of {attempt.pipeline} does not say whose tip it starts from.")
    dead = folder.of(attempt.parent).left()
    graph, described = read_descriptions(dead)
    if not graph.queries or not all(dead.location(query.name).is_dir() for query in graph.queries):
        raise Corrupt(
            f"Attempt {attempt.number} of {attempt.pipeline} was to start from the tip of attempt {attempt.parent}, "
            f"and {dead.root} is not there, or not whole. Let the driver see the folder that the restore has seen "
            "(CKPT_WORK, spark.ckpt.work), and start it again: it looks for its start anew."
        )
    dead = dead.seal()
    graph, described = read_descriptions(dead)  # as they are now: the old driver may have started one since
    lay_out_tip(graph, dead, folder)
    decided = _newest_decided(context, attempt.pipeline)
    origin = Origin(graph=graph, described=described, decided=decided)
    known = read_known(context, dead)
    _take_over_notes(origin, known, dead, folder)
    return origin, known


def _take_over_notes(origin: Origin, known: Known, dead: AttemptFolder, folder: AttemptFolder) -> None:
    """Also of queries that this attempt may never come to start: then its folder is a tip as the dead one's was."""
    for query in origin.graph.queries:
        committed = Location(folder.location(query.name)).committed
        if dead.staged(query.name).exists():
            ledger = Ledger(folder.staged(query.name), origin.floor_of(query.name))
            ledger.adopt(dead.staged(query.name), upto=committed)
        write_description(folder, query, origin.described_of(query.name))
    if known.base is not None:
        write_known(folder, known)


def _newest_decided(context: Context, pipeline: str) -> Manifest | None:
    inventory = context.store.views.inventory(pipeline)
    timeline = current_timeline(inventory.attempts)
    decided = [
        each
        for each in inventory.retained
        if each.phase is not Phase.DISCARDING and timeline.holds(each.attempt, each.ref.id)
    ]
    return load_manifest(context, decided[-1]) if decided else None
