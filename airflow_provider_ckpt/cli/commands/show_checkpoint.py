"""One checkpoint with everything that is known of it: its times, its cut, who acknowledged when, its sinks."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from rich.console import RenderableType

from airflow_provider_ckpt.cli import documents, humanise
from airflow_provider_ckpt.cli.output import Cell, Result, Row, facts, line, section
from airflow_provider_ckpt.cli.views import blame_section, event_section
from airflow_provider_ckpt.coordinator.marks import Marker
from airflow_provider_ckpt.metastore import Metastore, Progress
from airflow_provider_ckpt.protocol.codec import JsonObject
from airflow_provider_ckpt.protocol.cut import InFlight, in_flight
from airflow_provider_ckpt.protocol.records import (
    AckRow,
    AckStatus,
    Checkpoint,
    Cut,
    Event,
    Ref,
    SinkCommit,
    SinkStatus,
)

_PARTICIPANTS = ("PARTICIPANT", "=KIND", "=STATUS", "STAGE", "HOST", ">AFTER", ">NEW", ">FULL", "TIMINGS")
_CUTS = ("QUERY", ">BATCH", "CONSUMED")
_RANGES = ("CHANNEL", "WRITER", "READER", "IN FLIGHT")
_SINKS = ("SINK", "=STATUS", "STAGED", "COMMITTED", "VERSION", ">TRIES", "=AT", "LAST ERROR")
_FIRST = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """What the store knows of a checkpoint."""

    checkpoint: Checkpoint
    marks: list[str]
    progress: Progress
    participants: list[AckRow]  # those that are shown
    cuts: Mapping[str, Cut]
    sinks: list[SinkCommit]
    evidence: Mapping[str, int]  # outcome -> how many acks that changed nothing
    events: list[Event]

    @property
    def ranges(self) -> tuple[InFlight, ...]:
        return in_flight(self.cuts)


def show_checkpoint(store: Metastore, ref: Ref, participants: int) -> Result:
    found = _read(store, ref, participants)
    return Result(document=_document(found), view=_view(found))


def _read(store: Metastore, ref: Ref, participants: int) -> _Facts:
    checkpoint = store.checkpoints.get(ref)
    return _Facts(
        checkpoint=checkpoint,
        marks=Marker(store, ref.pipeline).marks(checkpoint),
        progress=store.acks.progress(ref),
        participants=store.acks.slowest(ref, limit=participants),
        cuts=store.barriers.cuts(ref),
        sinks=store.sinks.of(ref),
        evidence=Counter(str(each["outcome"]) for each in store.acks.evidence(ref)),
        events=store.events.newest(ref.pipeline, checkpoint=ref.id),
    )


def _document(found: _Facts) -> JsonObject:
    return {
        **documents.checkpoint(found.checkpoint),
        "marks": found.marks,
        "acked": found.progress.acked,
        "expected": found.checkpoint.participants,
        "cuts": [documents.cut(each) for each in found.cuts.values()],
        "in_flight": [documents.in_flight(each) for each in found.ranges],
        "slowest_participants": [documents.participant(each) for each in found.participants],
        "sinks": [documents.sink(each) for each in found.sinks],
        "evidence": dict(found.evidence),
        "events": documents.events(found.events),
    }


def _view(found: _Facts) -> list[RenderableType]:
    checkpoint = found.checkpoint
    shown = f"Participants, slowest first ({len(found.participants)} of {found.progress.expected})"
    return [
        line(f"{checkpoint.kind.capitalize()} {checkpoint.ref}", "bold"),
        facts([*_story(checkpoint), *_measures(found)]),
        *([] if checkpoint.failure is None else blame_section(checkpoint.failure.blame)),
        *section("Cuts", _CUTS, [_cut_row(each) for each in found.cuts.values()]),
        *section("Channels", _RANGES, [_range_row(each) for each in found.ranges]),
        *section("Sinks", _SINKS, [_sink_row(each) for each in found.sinks]),
        *(line(advice, "yellow") for each in found.sinks if (advice := _advice(checkpoint.ref, each))),
        *section(shown, _PARTICIPANTS, [_participant_row(each, checkpoint) for each in found.participants]),
        *event_section(found.events),
    ]


def _story(checkpoint: Checkpoint) -> list[tuple[str, Cell | None]]:
    asked = f"{checkpoint.requested_by}: {checkpoint.reason}" if checkpoint.reason else checkpoint.requested_by
    failure = checkpoint.failure
    return [
        ("Phase", humanise.phase(checkpoint.phase)),
        ("Failure", None if failure is None else line(f"{failure.reason}: {failure.message}", "red")),
        ("Attempt", str(checkpoint.attempt)),
        ("Asked by", asked),
        ("Retry of", None if checkpoint.retry_of is None else str(checkpoint.retry_of)),
        ("Triggered", humanise.time(checkpoint.triggered_at)),
        ("Deadline", humanise.time(checkpoint.deadline) if checkpoint.is_in_flight else None),
        ("Frozen", humanise.time(checkpoint.frozen_at)),
        ("Decided", humanise.time(checkpoint.decided_at)),
        ("Ended", humanise.time(checkpoint.ended_at)),
        ("Took", humanise.lasted(checkpoint.triggered_at, checkpoint.ended_at)),
    ]


def _measures(found: _Facts) -> list[tuple[str, Cell | None]]:
    checkpoint, decision = found.checkpoint, found.checkpoint.decision
    return [
        ("Marks", ", ".join(found.marks)),
        ("Verdict", checkpoint.verdict_detail),
        ("Acknowledged", f"{found.progress.acked} of {found.progress.expected}" if found.progress.expected else None),
        ("Bytes", None if decision is None else humanise.moved(decision)),
        ("Files", None if decision is None else f"{decision.new_files:,} new of {decision.full_files:,}"),
        ("Manifest", None if decision is None else decision.manifest_path),
        ("Changed nothing", ", ".join(f"{number} {outcome}" for outcome, number in sorted(found.evidence.items()))),
    ]


def _cut_row(cut: Cut) -> Row:
    consumed = ", ".join(f"{each.channel} up to batch {each.batch} of {each.writer}" for each in cut.consumed)
    return cut.query, "none yet" if cut.batch is None else str(cut.batch), consumed


def _range_row(range_: InFlight) -> Row:
    return range_.channel, range_.writer, range_.reader, f"batches {range_.after + 1} to {range_.upto}"


def _sink_row(sink: SinkCommit) -> Row:
    return (
        sink.sink,
        "committed, outcome unknown" if sink.status is SinkStatus.UNKNOWN else sink.status,
        _amount(sink.staged),
        _amount(sink.published),
        str(sink.published.get("version", "")),
        str(sink.tries),
        humanise.time(sink.committed_at),
        sink.last_error or "",
    )


def _amount(said: JsonObject) -> str:
    """`1,200 rows, 3 files, 4.0 MiB`, as far as the sink has said it."""
    rows, files, size = (said.get(key) for key in ("rows", "files", "bytes"))
    parts = [humanise.count(rows, "row")] if isinstance(rows, int) else []
    parts += [humanise.count(files, "file")] if isinstance(files, int) and files else []
    parts += [humanise.size(size)] if isinstance(size, int) and size else []
    return ", ".join(parts)


def _advice(ref: Ref, sink: SinkCommit) -> str | None:
    """What to do about a commit that is not done."""
    how = f"`ckpt resolve {ref} --sink {sink.sink} --as committed|abandoned --reason …`"
    match sink.status:
        case SinkStatus.UNKNOWN:
            return (
                f"{sink.sink} may or may not have published: its target did not answer. The agent asks its marker and "
                f"tries again by itself. If the target is gone for good, look at what its readers see, and say {how}."
            )
        case SinkStatus.PENDING if sink.tries:
            return f"{sink.sink} has failed {sink.tries} times and is tried again. If it is gone for good, say {how}."
    return None


def _participant_row(row: AckRow, checkpoint: Checkpoint) -> Row:
    ack = row.ack
    is_late = row.status is not AckStatus.ACKED
    return (
        line(row.participant, "red" if is_late else ""),
        row.kind,
        row.status,
        row.message or row.stage,
        row.host or "",
        humanise.lasted(checkpoint.triggered_at, row.acked_at),
        humanise.size(None if ack is None else ack.new_bytes),
        humanise.size(None if ack is None else ack.full_bytes),
        "" if ack is None else ", ".join(f"{stage} {seconds:.3g}s" for stage, seconds in ack.timings.items()),
    )
