"""The `ckpt` command. `main` is the command itself; `add_commands` and `run` mount it below another argparse parser.

Importing this loads neither SQLAlchemy nor boto3 nor Alembic: each command loads what it needs when it runs.
"""

import sys
from collections.abc import Sequence

from airflow_provider_ckpt.cli.arguments import Usage
from airflow_provider_ckpt.cli.exit_codes import ExitCode
from airflow_provider_ckpt.cli.failures import report_failure
from airflow_provider_ckpt.cli.parser import add_commands, build_parser
from airflow_provider_ckpt.cli.running import run

__all__ = ["ExitCode", "add_commands", "build_parser", "main", "run"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code says what became of it."""
    words = sys.argv[1:] if argv is None else list(argv)
    try:
        args = build_parser().parse_args(words)
    except Usage as error:
        return report_failure(error, as_json="--json" in words, verbose=False)
    except SystemExit as error:  # --help and --version
        return int(error.code or 0)
    return run(args)
