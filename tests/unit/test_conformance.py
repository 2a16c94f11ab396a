"""The conformance kit: the sink of the documents passes, and others that are wrong on purpose are found out."""

import linecache
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import uuid4

import pytest

from airflow_provider_ckpt.testing.conformance import CHECKS, find_faults

_DOCUMENT = Path(__file__).parents[2] / "docs" / "sinks.md"
_SNIPPETS = re.findall(r"```python\n(.*?)```", _DOCUMENT.read_text(), re.DOTALL)


class _Row:
    def __init__(self, number: int) -> None:
        self._number = number

    def asDict(self) -> dict[str, int]:  # noqa: N802 - as Spark's rows
        return {"n": self._number}


class _Frame:
    def __init__(self, numbers: Sequence[int]) -> None:
        self._numbers = numbers

    def collect(self) -> list[_Row]:
        return [_Row(number) for number in self._numbers]


@pytest.fixture
def new_path(tmp_path: Path) -> Callable[[], Path]:
    return lambda: tmp_path / uuid4().hex / "table.json"


@pytest.fixture
def documented(new_path: Callable[[], Path]) -> Iterator[ModuleType]:
    """The code of the document, as a module of its own: crashes happen in its lines."""
    module = ModuleType("documented_sink")
    module.__file__ = str(_DOCUMENT)
    vars(module).update(new_path=new_path, frame=_Frame)
    sys.modules[module.__name__] = module
    whole, kit = _SNIPPETS[1], _SNIPPETS[2]
    for snippet in (whole, kit.partition("assert find_faults")[0]):
        exec(compile(snippet, str(_DOCUMENT), "exec"), vars(module))
    yield module
    del sys.modules[module.__name__]
    linecache.clearcache()


def test_the_sink_of_the_documents_passes(documented: ModuleType, tmp_path: Path) -> None:
    assert find_faults(documented.OneFile, tmp_path) == []


def _subject(documented: ModuleType, wrong: type[Any]) -> type[Any]:
    class Subject(documented.OneFile):  # type: ignore[misc, name-defined]
        def open(self) -> Any:
            return wrong(self.path)

    return Subject


def _names(faults: list[str]) -> set[str]:
    known = {check.__name__.replace("_", " ") for check in CHECKS}
    found = {fault.partition(":")[0] for fault in faults}
    assert found <= known
    return found


def test_a_sink_that_commits_twice_is_found(documented: ModuleType, tmp_path: Path) -> None:
    class CommitsTwice(documented.OneFileSink):  # type: ignore[misc, name-defined]
        """Looks at the marker, and only then takes the lock."""

        def commit(self, publication: Any) -> Any:
            if (self.marker(publication.name).committed or 0) < publication.ref.id:
                with self._locked() as table:
                    for batch in publication.staged["batches"]:
                        table["rows"] += documented.json.loads(
                            (self._folder(publication.name) / batch["file"]).read_text()
                        )
                    self._replace(table)
                with self._locked() as table:
                    table["markers"][str(publication.name)] = (publication.ref.id, publication.attempt)
                    self._replace(table)
            rows = sum(batch["rows"] for batch in publication.staged["batches"])
            return documented.Published(rows=rows, bytes=0, files=1, version="")

    found = _names(find_faults(_subject(documented, CommitsTwice), tmp_path))
    assert "a crash anywhere in a commit is finished by the next" in found
    assert "a fenced attempt can not publish" in found


def test_a_sink_that_publishes_at_stage_is_found(documented: ModuleType, tmp_path: Path) -> None:
    class PublishesAtStage(documented.OneFileSink):  # type: ignore[misc, name-defined]
        def stage(self, rows: Any, slot: Any) -> Any:
            with self._locked() as table:
                table["rows"] += [row.asDict() for row in rows.collect()]
                self._replace(table)
            count = len(rows.collect())
            return documented.Staged(rows=count, bytes=0, files=0, document={"file": "", "rows": count})

        def commit(self, publication: Any) -> Any:
            with self._locked() as table:
                table["markers"][str(publication.name)] = (publication.ref.id, publication.attempt)
                self._replace(table)
            rows = sum(batch["rows"] for batch in publication.staged["batches"])
            return documented.Published(rows=rows, bytes=0, files=1, version="")

    found = _names(find_faults(_subject(documented, PublishesAtStage), tmp_path))
    assert {"staged is invisible", "a batch that runs again replaces what it staged"} <= found


def test_a_sink_that_forgets_its_marker_is_found(documented: ModuleType, tmp_path: Path) -> None:
    class ForgetsItsMarker(documented.OneFileSink):  # type: ignore[misc, name-defined]
        """Remembers in its own memory what it has published: a new process does not know."""

        def __init__(self, path: Path) -> None:
            super().__init__(path)
            self._done: set[int] = set()

        def commit(self, publication: Any) -> Any:
            batches = publication.staged["batches"]
            if publication.ref.id not in self._done:
                with self._locked() as table:
                    for batch in batches:
                        file = self._folder(publication.name) / batch["file"]
                        table["rows"] += documented.json.loads(file.read_text())
                    self._replace(table)
                self._done.add(publication.ref.id)
            rows = sum(batch["rows"] for batch in batches)
            return documented.Published(rows=rows, bytes=0, files=1, version="")

    found = _names(find_faults(_subject(documented, ForgetsItsMarker), tmp_path))
    assert {"a publication is whole and marked", "a second commit changes nothing"} <= found


def test_a_sink_whose_batches_grow_when_they_are_staged_again_is_found(documented: ModuleType, tmp_path: Path) -> None:
    class AddsToTheBatch(documented.OneFileSink):  # type: ignore[misc, name-defined]
        def stage(self, rows: Any, slot: Any) -> Any:
            file = self._folder(slot.name) / f"{slot.attempt}-{slot.batch}-all"
            file.parent.mkdir(parents=True, exist_ok=True)
            before = documented.json.loads(file.read_text()) if file.exists() else []
            lines = [row.asDict() for row in rows.collect()]
            file.write_text(documented.json.dumps(before + lines))
            document = {"file": file.name, "rows": len(lines)}
            return documented.Staged(rows=len(lines), bytes=0, files=1, document=document)

    found = _names(find_faults(_subject(documented, AddsToTheBatch), tmp_path))
    assert "a crash anywhere in stage is made good by the next run" in found


def test_a_sink_that_forgets_what_was_adopted_when_it_dies_discarding_is_found(
    documented: ModuleType, tmp_path: Path
) -> None:
    class EmptiesTheFolder(documented.OneFileSink):  # type: ignore[misc, name-defined]
        """Takes everything away, and puts back what is kept."""

        def discard(self, name: Any, attempt: int, keep: Any) -> None:
            files = [self._folder(name) / document["file"] for document in keep]
            kept = {file: file.read_text() for file in files if file.exists()}
            super().discard(name, attempt, [])
            for file, text in kept.items():
                file.write_text(text)

    found = _names(find_faults(_subject(documented, EmptiesTheFolder), tmp_path))
    assert found == {"a crash anywhere in discard is made good by the next"}


def test_a_sink_that_commits_wherever_its_target_stands_is_found(documented: ModuleType, tmp_path: Path) -> None:
    class CommitsAnywhere(documented.OneFileSink):  # type: ignore[misc, name-defined]
        def commit(self, publication: Any) -> Any:
            found = self.marker(publication.name).committed
            return super().commit(replace(publication, after=found))

    found = _names(find_faults(_subject(documented, CommitsAnywhere), tmp_path))
    assert found == {"a target that stands elsewhere is left as it is"}


def test_a_sink_that_does_not_say_who_has_taken_over_is_found(documented: ModuleType, tmp_path: Path) -> None:
    class SaysNothing(documented.OneFileSink):  # type: ignore[misc, name-defined]
        def marker(self, name: Any) -> Any:
            return documented.SinkMarker(committed=super().marker(name).committed)

    found = _names(find_faults(_subject(documented, SaysNothing), tmp_path))
    assert found == {"the marker names the newest attempt"}


def test_a_sink_that_keeps_what_holds_no_row_is_found(documented: ModuleType, tmp_path: Path) -> None:
    class KeepsEmptyBatches(documented.OneFileSink):  # type: ignore[misc, name-defined]
        def stage(self, rows: Any, slot: Any) -> Any:
            if rows.collect():
                return super().stage(rows, slot)
            file = self._folder(slot.name) / f"{slot.attempt}-{slot.batch}-{slot.run}"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("[]")
            return documented.Staged(rows=0, bytes=2, files=1, document={"file": file.name, "rows": 0})

        def leftovers(self, name: Any) -> Any:
            return list(self._folder(name).glob("*-*-*"))

    found = _names(find_faults(_subject(documented, KeepsEmptyBatches), tmp_path))
    assert found == {"a batch without rows leaves nothing behind"}


def _that_rolls_back(documented: ModuleType, *, at_once: bool) -> type[Any]:
    class RollsBack(documented.OneFileSink):  # type: ignore[misc, name-defined]
        def _replace(self, table: Any) -> None:
            """Remembers how many rows there were with each checkpoint."""
            for checkpoint, _ in table["markers"].values():
                table.setdefault("lengths", {}).setdefault(str(checkpoint), len(table["rows"]))
            super()._replace(table)

        def history(self, name: Any) -> Any:
            return frozenset(int(key) for key in self._read().get("lengths", {}))

        def roll_back(self, name: Any, attempt: int, to: int) -> None:
            with self._locked() as table:
                table["markers"][str(name)] = (to, attempt)
                if not at_once:
                    self._replace(table)
                table["rows"] = table["rows"][: table["lengths"][str(to)]]
                table["lengths"] = {key: rows for key, rows in table["lengths"].items() if int(key) <= to}
                self._replace(table)

    return _subject(documented, RollsBack)


def test_a_sink_that_rolls_back_in_two_steps_is_found(documented: ModuleType, tmp_path: Path) -> None:
    assert find_faults(_that_rolls_back(documented, at_once=True), tmp_path) == []
    found = _names(find_faults(_that_rolls_back(documented, at_once=False), tmp_path))
    assert found == {"a crash anywhere in a roll back is made good by the next"}
