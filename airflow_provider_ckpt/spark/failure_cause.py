"""From what Spark says of a failed query to the lines that a person needs.

What a Python function has raised (a sink's `stage`, the body of `foreachBatch`) comes as a whole traceback, and its own
words stand at the end: of the last one, where several were raised one from the other or on a worker.
"""

from itertools import dropwhile, takewhile

_TRACEBACK = "Traceback (most recent call last):"
_LINES = 3
_LONGEST = 500  # characters


def cause_of(error: str) -> str:
    """The exception's type and message; the first lines where it was not raised in Python."""
    _, is_python, traceback = error.rpartition(_TRACEBACK)
    return _own_words(traceback) if is_python else _joined(error.strip().splitlines())


def _own_words(traceback: str) -> str:
    """What comes after the frames, which are indented, up to what Spark adds after an empty line."""
    after_frames = dropwhile(lambda line: not line or line[0].isspace(), traceback.splitlines())
    return _joined(list(takewhile(str.strip, after_frames)))


def _joined(lines: list[str]) -> str:
    text = " ".join(line.strip() for line in lines[:_LINES])
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"
