"""The one way to standard output. A reader who has gone is no failure: what was asked for is done already."""

import json
import os
import sys

from airflow_provider_ckpt.protocol.codec import Json


def write_json(document: Json) -> None:
    """One document, in ASCII, so that it can be written and read anywhere."""
    write(json.dumps(document, indent=2, allow_nan=False) + "\n")


def write(text: str) -> None:
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:  # `ckpt list orders | head -1`
        _forget_the_reader()


def one_line(text: str) -> str:
    """Stored text as it may reach a terminal: no line breaks, no control characters, no hidden ones."""
    return "".join(character if character.isprintable() else _visible(character) for character in text)


def _visible(character: str) -> str:
    return " " if character.isspace() else "\N{REPLACEMENT CHARACTER}"


def _forget_the_reader() -> None:
    """Let the flush at the interpreter's end have somewhere to go."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
