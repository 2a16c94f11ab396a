"""`python -m tests.mutants [-k word] [--table]`: plants one bug after the other, and ends with 1 when one is missed."""

import argparse
import signal
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.harness import campaign
from tests.mutants.bug import Bug, Misplaced
from tests.mutants.bugs import BUGS
from tests.mutants.running import Run, a_copy, run, run_with

_LAST_LINES = 40


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("-k", metavar="WORD", default="", help="only bugs with this word in their name or area")
    parser.add_argument("--table", action="store_true", help="only print the table, run nothing")
    given = parser.parse_args(arguments)
    bugs = [bug for bug in BUGS if bug.is_about(given.k)]
    if not bugs:
        parser.error(f"no bug has {given.k!r} in its name or area")
    if given.table:
        print(_table((bug, ", ".join(bug.tests)) for bug in bugs))
        return 0
    return _run(bugs)


def _run(bugs: Sequence[Bug]) -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # whatever ends it, nothing of it is left
    campaign.settle()
    print(campaign.headline(), flush=True)
    with a_copy() as original:  # who edits the code meanwhile changes nothing here
        return 0 if _pass_without(bugs, original) and _are_found(bugs, original) else 1


def _pass_without(bugs: Iterable[Bug], original: Path) -> bool:
    """Whether the tests pass as they are: else they would find anything. A process for each of their files."""
    by_file: defaultdict[str, set[str]] = defaultdict(set)
    for test in (test for bug in bugs for test in bug.tests):
        by_file[test.partition("::")[0]].add(test)
    for file, tests in sorted(by_file.items()):
        done = run(original, sorted(tests))
        print(f"{'pass' if done.has_passed else 'FAIL'} without a bug: {file}, {done.seconds:.0f} s", flush=True)
        if not done.has_passed:
            _show(done)
            return False
    return True


def _are_found(bugs: Sequence[Bug], original: Path) -> bool:
    found = [(bug, _find(f"{number}/{len(bugs)}", bug, original)) for number, bug in enumerate(bugs, start=1)]
    print(f"\n{_table((bug, test or 'NOTHING') for bug, test in found)}")
    return all(test is not None for _, test in found)


def _find(number: str, bug: Bug, original: Path) -> str | None:
    """Plant it, and give back the test that has found it."""
    try:
        done = run_with(bug, original)
    except Misplaced as error:
        print(f"NOT FOUND {number} {bug.name}: {error}", flush=True)
        return None
    verdict = "NOT FOUND" if done.failed is None else "found"
    by = f"{', '.join(bug.tests)}: {done.why_nothing}" if done.failed is None else f"by {done.failed}"
    print(f"{verdict} {number} {bug.name}: {by}, {done.seconds:.0f} s", flush=True)
    if done.failed is None and not done.has_passed:
        _show(done)
    return done.failed


def _show(done: Run) -> None:
    for line in done.output.splitlines()[-_LAST_LINES:]:
        print(f"    {line}")


def _table(rows: Iterable[tuple[Bug, str]]) -> str:
    lines = [f"| {bug.name} | `{bug.file}` | {_short(by)} |" for bug, by in rows]
    return "\n".join(["| bug | file | found by |", "|---|---|---|", *lines])


def _short(tests: str) -> str:
    return "`" + tests.replace(", tests/", "`, `tests/") + "`" if "::" in tests else tests


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
