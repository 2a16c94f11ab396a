"""The app, made with the first request: the plugin is imported in every process of Airflow, the page is used in one."""

from collections.abc import Awaitable, Callable, MutableMapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from fastapi import FastAPI

_Scope: TypeAlias = MutableMapping[str, Any]
_Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class LazyApp:
    """An ASGI app that is not there until somebody asks it something."""

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        await self._app(scope, receive, send)

    @cached_property
    def _app(self) -> "FastAPI":
        from airflow_provider_ckpt.ui.app import make_app  # noqa: PLC0415 - as the module says

        return make_app()
