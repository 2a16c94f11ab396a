"""From parsed arguments to an exit code: loads the command, runs it, shows its result or its failure."""

import argparse
import importlib
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from airflow_provider_ckpt.cli.exit_codes import ExitCode
from airflow_provider_ckpt.cli.failures import report_failure
from airflow_provider_ckpt.cli.redaction import redact
from airflow_provider_ckpt.cli.writing import one_line

if TYPE_CHECKING:  # they load rich and SQLAlchemy
    from airflow_provider_ckpt.cli.output import Result
    from airflow_provider_ckpt.cli.session import Session

    Handler = Callable[[argparse.Namespace, Session], Result]


def run(args: argparse.Namespace) -> ExitCode:
    """Run the command that `args` name."""
    try:
        with _logging(verbose=args.verbose):
            return _run(args)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the outermost frame: nothing may pass it
        return report_failure(error, as_json=args.json, verbose=args.verbose)


def load_handler(name: str) -> "Handler":
    """The function behind `module:function`."""
    module, _, function = name.partition(":")
    return cast("Handler", getattr(importlib.import_module(f"{__package__}.commands.{module}"), function))


def _run(args: argparse.Namespace) -> ExitCode:
    from airflow_provider_ckpt.cli.output import show_result  # noqa: PLC0415 - `ckpt --help` stays light
    from airflow_provider_ckpt.cli.session import Session  # noqa: PLC0415

    with Session.of(args) as session:
        result = load_handler(args.handler)(args, session)
    show_result(result, as_json=args.json)
    return result.code


@contextmanager
def _logging(*, verbose: bool) -> Iterator[None]:
    """Our log on standard error while the command runs: warnings, with -v every change."""
    logger, handler = logging.getLogger("airflow_provider_ckpt"), logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Redacting("%(asctime)s %(levelname)s %(message)s"))
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO if verbose else logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)


class _Redacting(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return one_line(redact(super().format(record)))
