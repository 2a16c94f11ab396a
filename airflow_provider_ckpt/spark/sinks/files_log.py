"""Which files a sink of plain files has committed, and who may: small notes beside the target.

::

    <home>/committed/<checkpoint>    what a checkpoint has committed: the newest of them is the marker
    <home>/history/<n>               the same of checkpoints n·100 to n·100+99, together, by checkpoint
    <home>/attempts/<attempt>        the newest attempt; older ones are refused
    <home>/taken_back/<attempt>      a roll back under way: checkpoints that do not count any more, and their files

A commit lists all but the second, so they are kept short: once a hundred is full its notes are folded into one, which
is written before any of them goes. Whoever dies in between is followed by the next commit. A roll back is decided by
its note: from then on its checkpoints are not committed, and whoever comes next deletes the files, and then the notes.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby

from airflow_provider_ckpt.protocol.codec import Fields, Json, JsonObject, canonical, parse
from airflow_provider_ckpt.protocol.errors import NotFound
from airflow_provider_ckpt.protocol.recovery import SinkMarker
from airflow_provider_ckpt.storage.base import Storage

SPAN = 100  # checkpoints in a note of the history
_FOLDS = 10  # at once: whoever comes from a version that kept all of them is done after some commits
_FORGOTTEN = 1000  # attempts at once


@dataclass(frozen=True, slots=True, kw_only=True)
class _TakenBack:
    path: str
    checkpoints: tuple[int, ...]
    files: tuple[str, ...]


class FilesLog:
    def __init__(self, notes: Storage, home: str) -> None:
        self._notes = notes
        self._home = home

    def marker(self) -> SinkMarker:
        committed = max(self._standing(), default=None)
        return SinkMarker(committed=committed, attempt=max(self._numbers("attempts"), default=0))

    def history(self) -> frozenset[int]:
        """The checkpoints that it can go back to: as far as every file that came after is where it was put."""
        reached = set()
        for checkpoint in sorted(self._standing(), reverse=True):
            reached.add(checkpoint)
            if any(self._notes.stat(file) is None for file in self._files_of(checkpoint)):
                return frozenset(reached)
        return frozenset(reached) if self._numbers("history") else frozenset({*reached, 0})

    def take_back(self, attempt: int, to: int) -> None:
        """Everything that was committed after a checkpoint: it never happened."""
        self.finish_taking_back()  # of one that died: there is one note for each attempt
        later = [each for each in self._standing() if each > to]
        files: list[Json] = [file for each in later for file in self._files_of(each)]
        document: JsonObject = {"checkpoints": list(later), "files": files}
        self._notes.create(f"{self._home}/taken_back/{attempt}", canonical(document))
        self.finish_taking_back()

    def finish_taking_back(self) -> None:
        for each in self._taken_back():
            for file in each.files:
                self._notes.delete(file)
            for checkpoint in each.checkpoints:
                self._notes.delete(self._committed(checkpoint))
            self._notes.delete(each.path)

    def add(self, checkpoint: int, document: JsonObject) -> None:
        self._notes.create(self._committed(checkpoint), canonical(document))
        self._fold(self._numbers("committed"))

    def take_over(self, attempt: int) -> None:
        self._notes.create(f"{self._home}/attempts/{attempt}", canonical({"attempt": attempt}))
        older = [each for each in sorted(self._numbers("attempts")) if each < attempt]
        for each in older[:_FORGOTTEN]:
            self._notes.delete(f"{self._home}/attempts/{each}")

    def files(self) -> dict[int, tuple[str, ...]]:
        """By checkpoint. Newest notes first: one that is folded meanwhile is found in the history then."""
        found: dict[int, Json] = {each: self._read(each) for each in self._standing()}
        for span in self._numbers("history"):
            found.update(self._of_history(span))
        whole = sorted((each, document) for each, document in found.items() if document is not None)
        return {each: Fields(f"checkpoint {each}", document).texts("files") for each, document in whole}

    def _standing(self) -> list[int]:
        """The checkpoints that are committed, not folded, and not taken back."""
        doomed = {checkpoint for each in self._taken_back() for checkpoint in each.checkpoints}
        return [each for each in self._numbers("committed") if each not in doomed]

    def _taken_back(self) -> Iterator["_TakenBack"]:
        for number in self._numbers("taken_back"):
            path = f"{self._home}/taken_back/{number}"
            with suppress(NotFound):  # somebody else has just finished it
                fields = parse(path, self._notes.read(path))
                checkpoints = tuple(each for each in fields.sequence("checkpoints") if isinstance(each, int))
                yield _TakenBack(path=path, checkpoints=checkpoints, files=fields.texts("files"))

    def _files_of(self, checkpoint: int) -> tuple[str, ...]:
        return Fields(f"checkpoint {checkpoint}", self._read(checkpoint)).texts("files")

    def _fold(self, checkpoints: Sequence[int]) -> None:
        """Nothing is added to a hundred any more when there is a checkpoint after it."""
        current = max(checkpoints) // SPAN
        spans = groupby(sorted(checkpoints), lambda each: each // SPAN)
        closed = [(span, list(group)) for span, group in spans if span < current]
        for span, group in closed[:_FOLDS]:
            self._fold_one(span, group)

    def _fold_one(self, span: int, checkpoints: Sequence[int]) -> None:
        history = f"{self._home}/history/{span}"
        if self._notes.stat(history) is None:
            documents = {str(each): self._read(each) for each in checkpoints}
            if None in documents.values():
                return  # somebody else folds it now
            self._notes.create(history, canonical({"checkpoints": documents}))
        for each in checkpoints:
            self._notes.delete(self._committed(each))

    def _read(self, checkpoint: int) -> Json:
        """None when it is folded."""
        path = self._committed(checkpoint)
        try:
            data = self._notes.read(path)
        except NotFound:
            return None
        fields = parse(path, data)
        return {"rows": fields.whole("rows"), "bytes": fields.whole("bytes"), "files": list(fields.texts("files"))}

    def _of_history(self, span: int) -> Iterator[tuple[int, Json]]:
        path = f"{self._home}/history/{span}"
        for checkpoint, document in parse(path, self._notes.read(path)).object("checkpoints").items():
            yield int(checkpoint), document

    def _numbers(self, folder: str) -> list[int]:
        names = [file.path.rpartition("/")[2] for file in self._notes.list(f"{self._home}/{folder}/")]
        return [int(name) for name in names if name.isdecimal()]

    def _committed(self, checkpoint: int) -> str:
        return f"{self._home}/committed/{checkpoint}"
