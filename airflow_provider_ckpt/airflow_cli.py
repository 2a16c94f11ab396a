"""`airflow ckpt …`: the same commands as `ckpt`, for the connection that Airflow knows.

Asked by Airflow for every command line, so it imports nothing heavy before it is used.
"""

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_provider_ckpt.hooks.ckpt import Access


def get_commands() -> list[Any]:
    from airflow.cli.cli_config import ActionCommand, Arg  # noqa: PLC0415 - as above

    arguments = Arg(("arguments",), nargs=argparse.REMAINDER, help="as `ckpt` takes them; `airflow ckpt -- --help`")
    return [ActionCommand(name="ckpt", help="Checkpoints of Spark pipelines", func=run, args=(arguments,))]


def run(args: argparse.Namespace) -> None:
    from airflow_provider_ckpt.cli import main  # noqa: PLC0415 - as above

    for name in ("CKPT_METASTORE", "CKPT_STORAGE", "CKPT_WORK"):
        os.environ.pop(name, None)  # tasks do not listen to them either
    os.environ.update(_environ(_access()))
    sys.exit(main(args.arguments[1:] if args.arguments[:1] == ["--"] else args.arguments))


def _access() -> "Access":
    from airflow.sdk.exceptions import AirflowException  # noqa: PLC0415 - as above

    from airflow_provider_ckpt.cli.exit_codes import ExitCode  # noqa: PLC0415 - as above
    from airflow_provider_ckpt.hooks.server import server_access  # noqa: PLC0415 - as above
    from airflow_provider_ckpt.protocol.errors import CkptError  # noqa: PLC0415 - as above

    try:
        return server_access()
    except (CkptError, AirflowException) as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(ExitCode.MISUSED)


def _environ(access: "Access") -> dict[str, str]:
    """As `ckpt` itself reads it; what the connection does not say is embedded."""
    where = access.places
    given = {"CKPT_METASTORE": where.metastore, "CKPT_STORAGE": where.storage, "CKPT_WORK": where.work_folder}
    keys = {} if access.credentials is None else access.credentials.environ
    return {"CKPT_HOME": str(where.home), **keys, **{name: value for name, value in given.items() if value is not None}}
