"""A scripted pipeline that writes into a real target, by the sinks and the seats that Spark's drivers have.

Event n is a row with the number n, in a micro-batch of its own. Whatever happens in between, the target must hold each
event once.
"""

import platform
from pathlib import Path
from typing import Any, cast

from airflow_provider_ckpt.coordinator.commit import commit
from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.coordinator.manifests import load_manifest
from airflow_provider_ckpt.coordinator.restore import RestoreOptions, restore
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.records import Ack, Attempt, Capture, CaptureOutcome, Cut, Participant, Ref
from airflow_provider_ckpt.protocol.recovery import Policy, Target
from airflow_provider_ckpt.spark.sinks import Name, Sink
from airflow_provider_ckpt.spark.sinks.ledger import Ledger
from airflow_provider_ckpt.spark.sinks.opening import reach_sinks
from airflow_provider_ckpt.spark.sinks.recovering import Beginning, recover
from airflow_provider_ckpt.spark.sinks.seat import Seat
from airflow_provider_ckpt.testing.scripted import QUERY, SINK, ScriptedPipeline, _kind
from tests import frames
from tests.house import NAME, House


class TablePipeline(ScriptedPipeline):
    def __init__(self, context: Context, sink: Sink, work: Path, claim: str = "driver") -> None:
        super().__init__(context, NAME, sink=cast("Any", sink), claim=claim)
        self._target = sink
        self._work = work
        self._pledges: dict[Ref, Any] = {}
        self.seat: Seat

    def start(self, number: int | None = None) -> Attempt:
        attempt = super().start(number)
        folder = self._work / str(attempt.number)
        self.seat = Seat(
            name=Name(pipeline=NAME, sink=SINK),
            attempt=attempt.number,
            sink=self._target,
            ledger=Ledger(folder / "staged", floor=self.position - 1),
            scratch=folder / "scratch",
        )
        start = None if attempt.restored_from is None else Ref(NAME, attempt.restored_from)
        decided = None if start is None else load_manifest(self._context, self._context.store.checkpoints.get(start))
        batch = self.position - 1 if self.position else None
        recover(self._context, self.seat, Beginning(decided=decided, accepted=attempt.accepted, batch=batch))
        return attempt

    def process(self, events: int) -> None:
        for _ in range(events):
            super().process(1)
            self.seat(frames.numbers([self.position]), self.position - 1)

    def capture(self, ref: Ref) -> CaptureOutcome:
        self._pledges[ref] = self.seat.pledge(self.position - 1)
        return super().capture(ref)

    def commit(self, ref: Ref) -> None:
        checkpoint = commit(self._context, ref, self.attempt, {SINK: self.seat})
        if checkpoint.phase is Phase.COMPLETED:
            self.completed(ref)

    def completed(self, ref: Ref) -> None:
        frozen = self._frozen.get(ref)
        super().completed(ref)
        if frozen is not None:
            (sink,) = self._context.store.sinks.of(ref)
            self.seat.completed(frozen.position - 1, is_resolved=not sink.published)

    def _capture(self, ref: Ref) -> CaptureOutcome:
        cut = Cut(
            query=QUERY,
            batch=self.position,
            properties={"committed": self.position - 1, "target": self._target.describe()},
        )
        participants = tuple(Participant(name=name, kind=_kind(name)) for name in self.participants)
        capture = Capture(cut=cut, participants=participants, bases=() if self._base is None else (self._base,))
        return self._context.store.barriers.capture(ref, self.attempt, capture, host=platform.node())

    def _make_durable(self, ref: Ref, participant: str) -> Ack:
        if participant == SINK:
            return Ack(participant=participant, staged=self._pledges[ref])
        return super()._make_durable(ref, participant)


def go_back(house: House, to: int | None = None, *, accept: str | None = None) -> None:
    """As `ckpt restore` does, with the targets that can be reached."""
    policy = Policy(accept_duplicates=frozenset(filter(None, [accept])))
    sinks = reach_sinks(house.context, NAME)
    restore(
        house.context,
        NAME,
        RestoreOptions(target=Target(id=to, rewind=to is None), policy=policy, committers=sinks, is_proven_dead=True),
    )
