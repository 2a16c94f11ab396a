"""Where something lies on HDFS, by its URL: the address that Spark dials, and the one that Python does.

::

    hdfs://namenode:8020/lake/orders?webhdfs=namenode:9870&user=spark

`namenode:8020`, or the name of a nameservice, is how Spark's Hadoop client reaches it. `webhdfs` is the name node's
HTTP address, which Python speaks to: port 9870 of the same host, if nothing is said. `user` is who Python says it is.
"""

import re
from dataclasses import dataclass
from urllib.parse import SplitResult, parse_qsl

from airflow_provider_ckpt.protocol.errors import Misused
from airflow_provider_ckpt.protocol.paths import check_path

HDFS_FORM = "hdfs://namenode:8020/path?webhdfs=namenode:9870&user=…"
_HTTP_PORT = 9870
_SETTINGS = frozenset({"webhdfs", "user"})
_ADDRESS = re.compile(r"(?P<host>[A-Za-z0-9](?:[A-Za-z0-9._\-]*[A-Za-z0-9])?)(?::(?P<port>[0-9]{1,5}))?")
_PATH = re.compile(r"[A-Za-z0-9/._=\-]*")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._\-]*\$?")


@dataclass(frozen=True, slots=True, kw_only=True)
class HdfsPlace:
    authority: str  # "namenode:8020"
    root: str  # "/lake/orders"; "" is all of it
    host: str  # of the name node's HTTP address
    port: int
    user: str | None  # None: whoever runs this

    @property
    def url(self) -> str:
        """As Spark names it."""
        return f"hdfs://{self.authority}{self.root}"


def read_place(parts: SplitResult) -> HdfsPlace:
    """:raises Misused: when it is no place on HDFS; the text never repeats the URL, because it may hold a secret."""
    if "@" in parts.netloc:
        raise Misused(f"Credentials do not belong in the URL of HDFS, and it takes none: take them out. {_wanted()}")
    authority = _ADDRESS.fullmatch(parts.netloc)
    if authority is None or parts.fragment or not _PATH.fullmatch(parts.path):
        raise Misused(f"A URL of HDFS has a name node and a path of letters, digits and / . _ - = only. {_wanted()}")
    settings = _settings(parts.query)
    http = _ADDRESS.fullmatch(settings.get("webhdfs", authority["host"]))
    if http is None or not _USER.fullmatch(settings.get("user", "_")):
        raise Misused(f"In a URL of HDFS, webhdfs is host:port, and user is the name of a user. {_wanted()}")
    path = parts.path.strip("/")
    return HdfsPlace(
        authority=parts.netloc,
        root=f"/{check_path(path)}" if path else "",
        host=http["host"],
        port=int(http["port"] or _HTTP_PORT),
        user=settings.get("user"),
    )


def _settings(query: str) -> dict[str, str]:
    pairs = parse_qsl(query, keep_blank_values=True)
    settings = dict(pairs)
    if len(settings) != len(pairs) or not settings.keys() <= _SETTINGS or not all(settings.values()):
        raise Misused(
            f"A URL of HDFS takes {' and '.join(sorted(_SETTINGS))}, each once and with a value. "
            f"There is no Kerberos yet. {_wanted()}"
        )
    return settings


def _wanted() -> str:
    return f"Write {HDFS_FORM}"
