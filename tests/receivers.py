"""Those who are told: a real HTTP server, a real mail server and a real StatsD socket on this host."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, HTTPServer
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

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            webhook.heard.append((self.headers["Authorization"], json.loads(body)))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *_: object) -> None:  # noqa: A002
            """Quiet."""

    with HTTPServer(("localhost", 0), Receiver) as server:
        webhook.url = f"http://localhost:{server.server_port}/hook"
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield webhook
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
    """Reads datagrams of the form `name:value|kind`."""

    def __init__(self, receiver: socket.socket) -> None:
        self._receiver = receiver
        self.address = f"localhost:{receiver.getsockname()[1]}"

    def heard(self, count: int) -> dict[str, str]:
        lines = [self._receiver.recv(1024).decode() for _ in range(count)]
        return dict(line.split(":", 1) for line in lines)


@contextmanager
def a_listener() -> Iterator[Listener]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("localhost", 0))
        receiver.settimeout(10)
        yield Listener(receiver)
