"""Asking the app as a browser or a program does, in this process."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import httpx
from airflow.api_fastapi.app import get_auth_manager
from fastapi import FastAPI

HOST = "http://airflow.test"


@dataclass(frozen=True)
class Client:
    """One person's requests; without headers, anonymous ones."""

    app: FastAPI
    headers: dict[str, str] = field(default_factory=dict)

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        return asyncio.run(self._ask(method, path, **options))

    def get(self, path: str, **parameters: Any) -> Any:
        """What a page would get: the document, of an answer that is well."""
        answer = self.ask("GET", path, params=parameters)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        return self.ask("POST", path, json=body)

    async def _ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        transport = httpx.ASGITransport(app=self.app)
        async with httpx.AsyncClient(transport=transport, base_url=HOST, headers=self.headers) as client:
            return await client.request(method, path, **options)


def token_of(user: Any) -> str:
    return get_auth_manager().generate_jwt(user)


def program(app: FastAPI, user: Any) -> Client:
    """With a token, as a program: no cookie, no origin."""
    return Client(app, {"Authorization": f"Bearer {token_of(user)}", "X-Ckpt-Action": "test"})


def browser_of(app: FastAPI, user: Any, **headers: str) -> Client:
    """With Airflow's cookie, as a browser."""
    return Client(app, {"Cookie": f"_token={token_of(user)}", **headers})
