"""How a failure is told: a sentence on standard error, with --json a document on standard output too."""

import sys
import traceback

from airflow_provider_ckpt.cli.exit_codes import ExitCode, code_of
from airflow_provider_ckpt.cli.redaction import redact
from airflow_provider_ckpt.cli.writing import one_line, write_json
from airflow_provider_ckpt.protocol.errors import CkptError


def report_failure(error: BaseException, *, as_json: bool, verbose: bool) -> ExitCode:
    """Say what happened and what to do next; the code for it."""
    sentence = one_line(redact(_sentence(error)))
    if verbose:
        lines = redact("".join(traceback.format_exception(error))).split("\n")
        print("\n".join(map(one_line, lines)), file=sys.stderr)
    print(sentence, file=sys.stderr)
    if as_json:
        write_json({"error": {"kind": type(error).__name__, "message": sentence}})
    return code_of(error)


def _sentence(error: BaseException) -> str:
    if isinstance(error, CkptError):
        return str(error)
    if isinstance(error, KeyboardInterrupt):
        return "Interrupted."
    return f"Unexpected failure, please report it: {type(error).__name__}: {error}. Run again with -v to see more."
