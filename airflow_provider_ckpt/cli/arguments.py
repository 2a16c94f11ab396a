"""Arguments as argparse reads them: each kind checks itself, and a mistake becomes a sentence."""

import argparse
from collections.abc import Callable
from typing import NoReturn

from airflow_provider_ckpt.protocol.errors import Misused
from airflow_provider_ckpt.protocol.records import LARGEST


class Usage(Misused):
    """The command line can not be read."""


class Parser(argparse.ArgumentParser):
    """Raises instead of ending the process, so that --json can answer in JSON."""

    def error(self, message: str) -> NoReturn:
        raise Usage(f"{message[:1].upper()}{message[1:]}. See `{self.prog} --help`.")


def whole(*, least: int = 1) -> Callable[[str], int]:
    """A whole number that the store can hold."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdecimal() and least <= int(text[:11]) <= LARGEST):
            raise argparse.ArgumentTypeError(f"{text!r:.40} is not a whole number from {least} to {LARGEST}")
        return int(text)

    return read


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= LARGEST:
        raise argparse.ArgumentTypeError(f"{text!r:.40} is not a number of seconds")
    return value


def free_text(text: str) -> str:
    """Text for people, kept in the store: bytes that are no UTF-8 are replaced."""
    return text.encode(errors="replace").decode()


def short_text(text: str) -> str:
    """The name of somebody or something that the store can find again."""
    cleaned = free_text(text)
    if not 1 <= len(cleaned) <= 200 or not cleaned.isprintable():  # noqa: PLR2004 - as wide as the store's columns
        raise argparse.ArgumentTypeError(f"{text!r:.40} is not a name of 1 to 200 printable characters")
    return cleaned


def setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"{text!r:.40} is not NAME=VALUE, such as interval=5m")
    return name, value
