"""The interface of a sink that publishes exactly once, and the values that it is handed.

A batch is staged where no reader sees it. At the cut of a checkpoint everything staged since the last publication is
named in the sink's ack, and so in the manifest. Once the checkpoint is decided it is published, in one step, together
with a marker *in the target itself* that says up to which checkpoint it has come.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_ckpt.protocol.codec import JsonObject
from airflow_provider_ckpt.protocol.errors import Fenced, Refused
from airflow_provider_ckpt.protocol.records import Ref
from airflow_provider_ckpt.protocol.recovery import SinkMarker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """Whose data it is: several sinks, also of several pipelines, may share a target."""

    pipeline: str
    sink: str  # "<query>/sink"

    def __str__(self) -> str:
        return f"{self.pipeline}/{self.sink}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """Where a micro-batch is staged. A batch that runs again has another `run`, and replaces what it had staged."""

    name: Name
    attempt: int
    batch: int
    run: str
    scratch: Path  # a folder that driver and executors share, which goes when the batch is staged


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """What was staged of a micro-batch; `document` is all that a commit needs to find it again."""

    rows: int
    bytes: int
    files: int
    document: JsonObject

    def to_json(self) -> JsonObject:
        return {"rows": self.rows, "bytes": self.bytes, "files": self.files, "document": self.document}


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """What a decided checkpoint publishes through one sink."""

    ref: Ref
    name: Name
    attempt: int  # who publishes: the current attempt, which may finish an ancestor's checkpoint
    after: int | None  # the checkpoint that the target must be at, by its marker; None: at nothing
    staged: JsonObject  # what `prepare` returned, out of the manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    rows: int
    bytes: int
    files: int
    version: str  # of the target, as its readers know it

    def to_json(self) -> JsonObject:
        return {"rows": self.rows, "bytes": self.bytes, "files": self.files, "version": self.version}


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """Something staged, and the attempt that staged it."""

    attempt: int
    what: str
    bytes: int


class Sink(ABC):
    """Publishes what a query gives, exactly once.

    Five calls are needed; `prepare`, `history`, `roll_back`, `leftovers` and `describe` have defaults. The conformance
    kit (`airflow_provider_ckpt.testing.conformance`) tries an implementation in every way in which it could go wrong.
    """

    @abstractmethod
    def stage(self, rows: "DataFrame", slot: Slot) -> Staged:
        """Write a micro-batch where no reader of the target sees it; return when it is durable.

        May assume: batches of one attempt come one after the other. Must guarantee: what `run` of a batch has staged
        stays until it is published or discarded; another run, or an attempt that was replaced, can not change it. A
        batch without rows leaves nothing behind: a checkpoint in which no row was staged is never committed.
        """

    def prepare(self, batches: Sequence[JsonObject]) -> JsonObject:
        """At the cut: turn the documents of `stage`, oldest first, into the one that `commit` gets.

        May be called again for the same batches and more: a checkpoint that fails rolls into the next one.
        """
        return {"batches": list(batches)}

    @abstractmethod
    def commit(self, publication: Publication) -> Published:
        """Publish, all of it and once: in one step of the target, check the marker, publish, and set the marker.

        Must guarantee: a call for a checkpoint that the marker has reached changes nothing; the marker never decreases;
        an attempt older than the newest that `recover` has named is refused; a target that is at another checkpoint
        than the one that this commit continues is left as it is; nothing is published in part. `must_commit` says
        whether to go on, or refuses.

        :raises Fenced: when the target knows a newer attempt.
        :raises Refused: when the marker is not at `publication.after`.
        :raises OutcomeUnknown: when it may or may not have been published. It is called again.
        """

    @abstractmethod
    def recover(self, name: Name, attempt: int) -> SinkMarker:
        """A new attempt takes over: from now on older ones are refused by `commit`. Says what is published.

        :raises Fenced: when the target knows a newer attempt.
        """

    @abstractmethod
    def marker(self, name: Name) -> SinkMarker:
        """What is published, and the newest attempt; changes nothing, and costs the same however old the target is."""

    @abstractmethod
    def discard(self, name: Name, attempt: int, keep: Sequence[JsonObject]) -> None:
        """Throw away what attempts before this one have staged and nobody published; `keep` is adopted."""

    def history(self, name: Name) -> frozenset[int]:  # noqa: ARG002
        """The checkpoints that `roll_back` can go to now; 0 is nothing. Asked where the target stands elsewhere."""
        return frozenset()

    def roll_back(self, name: Name, attempt: int, to: int) -> None:
        """Go back to what was published with checkpoint `to` (0: to nothing), and refuse older attempts.

        Or forward again, to what was taken back. Only called for a checkpoint of `history`.
        """
        raise Refused(f"{name} can not go back to checkpoint {to} (attempt {attempt}): its target can not roll back.")

    def leftovers(self, name: Name) -> Iterable[Leftover]:  # noqa: ARG002
        """Everything that is staged now, for the audit of a cleanup."""
        return ()

    def describe(self) -> JsonObject:
        """What the target is, without a secret: `ckpt show` prints it, and `ckpt restore` finds the target by it."""
        return {"kind": type(self).__name__}


def must_commit(publication: Publication, marker: SinkMarker) -> bool:
    """Whether the target lacks this commit and may take it; False when it is done already.

    :raises Fenced: when the target has heard of a newer attempt.
    :raises Refused: when the target stands elsewhere.
    """
    if (marker.committed or 0) >= publication.ref.id:
        return False
    refuse_older(publication.name, publication.attempt, marker.attempt)
    if (marker.committed or 0) != (publication.after or 0):
        raise stands_elsewhere(publication.ref, publication.name, marker.committed, publication.after)
    return True


def may_take_over(name: Name, attempt: int) -> Callable[[SinkMarker], bool]:
    """For `recover` and `roll_back`: any target may be taken over by an attempt that is not older."""

    def may(marker: SinkMarker) -> bool:
        refuse_older(name, attempt, marker.attempt)
        return True

    return may


def stands_elsewhere(ref: Ref, name: Name, found: int | None, expected: int | None) -> Refused:
    """The refusal to commit, with the ways out."""
    then = (
        f"and go back to what the target has with `ckpt restore {ref.pipeline} --to {found}`" if found else "for good"
    )
    return Refused(
        f"The target of {name} is at {_at(found)}, and {ref} continues {_at(expected)}: what lies between is not "
        f"there, and nothing is committed. Bring the target back to {_at(expected)}; or give this commit up with "
        f"`ckpt resolve {ref} --sink {name.sink} --as abandoned --reason …`, {then}."
    )


def _at(checkpoint: int | None) -> str:
    return f"checkpoint {checkpoint}" if checkpoint else "nothing"


def refuse_older(name: Name, attempt: int, newest: int) -> None:
    """:raises Fenced: when the target has heard of a newer attempt."""
    if attempt < newest:
        raise Fenced(f"Attempt {attempt} may not publish through {name}: its target knows attempt {newest}.")
