"""Those who are told: a real HTTP server, a real mail server and a real StatsD socket on this host."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, HTTPServer
from queue import SimpleQueue
from socketserver import BaseServer, DatagramRequestHandler, UDPServer
from threading import Thread
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.handlers import Message as Handler

from airflow_provider_ckpt.testing.airflow import free_port


@dataclass
class Webhook:
    url: str
    heard: list[tuple[str | None, Any]] = field(default_factory=list)  # the header Authorization, the document

    @property
    def documents(self) -> list[Any]:
        return [document for _, document in self.heard]


@contextmanager
def a_webhook() -> Iterator[Webhook]:
    webhook = Webhook("")

    def hear(authorization: str | None, body: bytes) -> None:
        webhook.heard.append((authorization, json.loads(body)))

    with an_http_server(hear) as address:
        webhook.url = f"{address}/hook"
        yield webhook


@contextmanager
def an_http_server(hear: Callable[[str | None, bytes], None]) -> Iterator[str]:
    """A server that hands on what is posted: the header Authorization, and the body."""

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            hear(self.headers["Authorization"], self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *_: object) -> None:  # noqa: A002
            """Quiet."""

    with HTTPServer(("localhost", 0), Receiver) as server, _serving(server):
        yield f"http://localhost:{server.server_port}"


@contextmanager
def _serving(server: BaseServer) -> Iterator[None]:
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()


class Mailbox(Handler):
    def __init__(self) -> None:
        super().__init__()
        self.port = free_port()
        self.mails: list[Message] = []

    def handle_message(self, message: Message) -> None:
        self.mails.append(message)


@contextmanager
def a_mailbox() -> Iterator[Mailbox]:
    mailbox = Mailbox()
    server = Controller(mailbox, hostname="localhost", port=mailbox.port)
    server.start()
    try:
        yield mailbox
    finally:
        server.stop()


class Listener:
    """Reads datagrams of the form `name:value|kind`, as they come."""

    def __init__(self) -> None:
        self.address = ""
        self._lines: SimpleQueue[str] = SimpleQueue()

    def hear(self, line: str) -> None:
        self._lines.put(line)

    def heard(self, count: int) -> dict[str, str]:
        """The next so many."""
        return dict(_parsed(self._lines.get(timeout=10)) for _ in range(count))

    def so_far(self) -> list[tuple[str, str]]:
        """All that has come and was not asked for yet."""
        return [_parsed(self._lines.get()) for _ in range(self._lines.qsize())]


def _parsed(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name, value


@contextmanager
def a_listener() -> Iterator[Listener]:
    listener = Listener()

    class Receiver(DatagramRequestHandler):
        def handle(self) -> None:
            listener.hear(self.rfile.read().decode())

    with UDPServer(("localhost", 0), Receiver) as server, _serving(server):
        listener.address = f"localhost:{server.server_address[1]}"
        yield listener
