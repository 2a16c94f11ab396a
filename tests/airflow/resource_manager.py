"""YARN's resource manager as far as applications are asked for and killed: its paths, answers and codes."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any


@dataclass
class ResourceManager:
    url: str = ""
    apps: dict[str, dict[str, str]] = field(default_factory=dict)
    killed: list[str] = field(default_factory=list)

    def submit(self, id_: str, state: str = "ACCEPTED") -> None:
        self.apps[id_] = {
            "id": id_,
            "state": state,
            "finalStatus": "UNDEFINED",
            "diagnostics": "AM container is launched, waiting for AM container to Register with RM",
        }

    def fail(self, id_: str, why: str) -> None:
        self.apps[id_] |= {"state": "FAILED", "finalStatus": "FAILED", "diagnostics": why}


@contextmanager
def a_resource_manager() -> Iterator[ResourceManager]:
    manager = ResourceManager()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            app = manager.apps.get(self.path.rpartition("/")[2])
            self._answer(*((200, {"app": app}) if app else (404, _not_found(self.path))))

        def do_PUT(self) -> None:
            id_ = self.path.split("/")[-2]
            wanted = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if id_ not in manager.apps:
                self._answer(404, _not_found(self.path))
                return
            manager.killed.append(id_)
            if manager.apps[id_]["finalStatus"] == "UNDEFINED":
                manager.apps[id_] |= {
                    "state": wanted["state"],
                    "finalStatus": "KILLED",
                    "diagnostics": "by user dr.who",
                }
            self._answer(202, {"state": "ACCEPTED"})

        def _answer(self, code: int, document: Any) -> None:
            body = json.dumps(document).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json;charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *_: object) -> None:  # noqa: A002
            """Quiet."""

    with HTTPServer(("localhost", 0), Handler) as server:
        manager.url = f"http://localhost:{server.server_port}"
        thread = Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield manager
        finally:
            server.shutdown()
            thread.join()


def _not_found(path: str) -> dict[str, Any]:
    return {
        "RemoteException": {
            "exception": "NotFoundException",
            "message": f"java.lang.Exception: app with id: {path} not found",
            "javaClassName": "org.apache.hadoop.yarn.webapp.NotFoundException",
        }
    }
