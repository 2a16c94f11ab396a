"""Where the metastore and the storage are: options first, then the environment, then the embedded ones."""

import argparse
import getpass
import os
import socket
from collections.abc import Mapping

from airflow_provider_ckpt.cli.redaction import has_secret
from airflow_provider_ckpt.coordinator.places import Places
from airflow_provider_ckpt.coordinator.places import places as find_places
from airflow_provider_ckpt.protocol.errors import Misused


def places(args: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> Places:
    if args.metastore and has_secret(args.metastore):
        raise Misused(
            "A password on the command line can be read by every user of this host: it is refused (renew it). "
            "Put the URL into the environment as CKPT_METASTORE."
        )
    return find_places(args.metastore, args.storage, environ=environ)


def default_actor() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
