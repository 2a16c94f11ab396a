"""A planted bug: one text of one file that becomes another, and the tests that must find it."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Area(StrEnum):
    GUARDS = "guards"
    CUT = "cut"
    TIP = "tip"
    RESTORE = "restore"
    SINKS = "sinks"
    RETENTION = "retention"
    MANIFEST = "manifest"
    PATHS = "paths"
    OPERATORS = "operators"
    SENSORS = "sensors"
    TRIGGERS = "triggers"
    PAGE = "page"


class Misplaced(Exception):
    """The text that a bug replaces is not there exactly once: the code has changed, and the bug must follow it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    """Something that a tired engineer could write."""

    name: str  # a sentence
    area: Area
    file: str  # below the root of the repository
    text: str  # occurs once in the file
    replacement: str
    tests: tuple[str, ...]  # pytest's ids; one of them must fail

    def planted_in(self, source: str) -> str:
        """:raises Misplaced: when the text is not there exactly once."""
        if (count := source.count(self.text)) != 1:
            raise Misplaced(f"{self.file} has the text of {self.name!r} {count} times, not once: {self.text!r}")
        return source.replace(self.text, self.replacement)

    def plant(self, tree: Path) -> None:
        file = tree / self.file
        file.write_text(self.planted_in(file.read_text()))

    def is_about(self, word: str) -> bool:
        return word.lower() in f"{self.name} {self.area}".lower()
