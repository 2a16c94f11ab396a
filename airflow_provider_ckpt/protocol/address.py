"""Where a server listens: `host:port`."""

from airflow_provider_ckpt.protocol.errors import Misused

_PORTS = range(1, 65_536)


def parse_address(what: str, text: str) -> tuple[str, int]:
    """:raises Misused: naming what it is the address of."""
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal()) or int(port) not in _PORTS:
        raise Misused(f"{what} is {text!r:.60}: host:port belongs there.")
    return host, int(port)
