"""Where the metastore and the storage are: options first, then the environment, then the embedded ones."""

import argparse
import getpass
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from airflow_provider_ckpt.cli.redaction import has_secret
from airflow_provider_ckpt.protocol.errors import Misused


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """What was given; what was not is embedded in `home`."""

    home: Path
    metastore: str | None
    storage: str | None

    @property
    def metastore_url(self) -> str:
        return self.metastore or f"sqlite:///{self.home / 'metastore.db'}"

    @property
    def storage_url(self) -> str:
        """:raises Misused: for a metastore elsewhere whose storage nobody named: another would look all corrupt."""
        if self.storage is not None:
            return self.storage
        if self.metastore is not None:
            raise Misused(
                "The metastore is given and its storage is not: set CKPT_STORAGE (or --storage) to the storage that "
                "belongs to it. With another one every checkpoint would look corrupt."
            )
        return str(self.home / "storage")


def places(args: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> Places:
    home = Path(environ.get("CKPT_HOME") or "~/.ckpt").expanduser().absolute()
    storage = args.storage or environ.get("CKPT_STORAGE") or None
    return Places(
        home=home,
        metastore=_metastore(args.metastore, environ.get("CKPT_METASTORE") or None),
        storage=None if storage is None else _absolute(storage),
    )


def default_actor() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def _metastore(option: str | None, variable: str | None) -> str | None:
    if option and has_secret(option):
        raise Misused(
            "A password on the command line can be read by every user of this host: it is refused (renew it). "
            "Put the URL into the environment as CKPT_METASTORE."
        )
    url = option or variable
    if url is not None and (any(c.isspace() for c in url) or url.partition("://")[2].partition("?")[0].count("@") > 1):
        raise Misused("The metastore's URL can not be read: write '@', ':', '/' and spaces in its password as %40 …")
    return url


def _absolute(storage: str) -> str:
    """People give relative paths and `~`; a URL stays as it is."""
    return storage if ":" in storage else str(Path(storage).expanduser().absolute())
