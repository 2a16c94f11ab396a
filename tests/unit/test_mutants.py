"""The planted bugs of `make test-mutants` fit the code as it is; whether they are found is seen there."""

import ast
from collections import Counter
from collections.abc import Callable
from functools import cache

import pytest

from tests.mutants.__main__ import main
from tests.mutants.bug import Area, Bug, Misplaced
from tests.mutants.bugs import BUGS
from tests.mutants.running import ROOT, Run

EACH = pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
SINKS = ("files", "delta", "iceberg", "postgres")


@cache
def _functions(file: str) -> frozenset[str]:
    nodes = ast.walk(ast.parse((ROOT / file).read_text()))
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef))


@EACH
def test_a_bug_has_its_place_changes_something_and_compiles(bug: Bug) -> None:
    assert bug.text != bug.replacement
    compile(bug.planted_in((ROOT / bug.file).read_text()), bug.file, "exec")


@EACH
def test_the_tests_that_must_find_a_bug_exist(bug: Bug) -> None:
    assert bug.tests
    for test in bug.tests:
        file, _, name = test.partition("::")
        assert name.partition("[")[0].rpartition("::")[2] in _functions(file)


def test_there_are_enough_bugs_in_every_area_and_in_every_sink() -> None:
    assert len(BUGS) >= 25
    assert {bug.area for bug in BUGS} == set(Area)
    for kind in SINKS:
        assert any(bug.file.endswith(f"sinks/{kind}.py") for bug in BUGS), kind


@pytest.mark.parametrize("what", [lambda bug: bug.name, lambda bug: (bug.file, bug.replacement, bug.text)])
def test_no_bug_is_planted_twice(what: Callable[[Bug], object]) -> None:
    assert max(Counter(map(what, BUGS)).values()) == 1


@pytest.mark.parametrize(("source", "count"), [("", 0), ("one\none", 2)])
def test_a_text_that_is_not_there_once_is_named_with_its_file(source: str, count: int) -> None:
    bug = Bug(name="n", area=Area.CUT, file="some/file.py", text="one", replacement="two", tests=("t",))
    with pytest.raises(Misplaced, match=f"some/file.py has the text of 'n' {count} times"):
        bug.planted_in(source)


@pytest.mark.parametrize(
    ("code", "output", "found"),
    [
        (1, "FAILED tests/a.py::test_b[c - d] - AssertionError: no", "tests/a.py::test_b[c - d]"),
        (1, "FAILED tests/a.py::TestC::test_b - assert 1 == 2", "tests/a.py::TestC::test_b"),
        (1, "FAILED tests/a.py::test_b", "tests/a.py::test_b"),
        (1, "ERROR tests/a.py::test_b - a fixture broke", None),
        (2, "ERROR tests/a.py - SyntaxError", None),
        (0, "1 passed", None),
        (None, "FAILED tests/a.py::test_b - it was interrupted", None),
    ],
)
def test_only_a_test_that_fails_has_found_something(code: int | None, output: str, found: str | None) -> None:
    assert Run(code=code, output=output, seconds=1.0).failed == found


def test_the_documents_have_the_table_of_planted_bugs(capsys: pytest.CaptureFixture[str]) -> None:
    """`python -m tests.mutants --table` prints what belongs there."""
    assert main(["--table"]) == 0
    assert capsys.readouterr().out.strip() in (ROOT / "docs" / "testing.md").read_text()
