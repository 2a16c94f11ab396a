"""The FastAPI app behind the page. Nothing in it answers anonymous requests: not the page, its files or its schema."""

from http import HTTPStatus
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse

from airflow_provider_ckpt.cli.redaction import redact, redact_all
from airflow_provider_ckpt.protocol.errors import (
    AlreadyExists,
    CkptError,
    Corrupt,
    LostRace,
    Misused,
    NotFound,
    Refused,
)
from airflow_provider_ckpt.ui import actions, attempts, checkpoint, history, page, pipelines, storage, trends
from airflow_provider_ckpt.ui.answers import Problem
from airflow_provider_ckpt.ui.security import authenticated
from airflow_provider_ckpt.version import __version__

_STATUS: dict[type[CkptError], HTTPStatus] = {  # the first that fits
    NotFound: HTTPStatus.NOT_FOUND,
    Misused: HTTPStatus.BAD_REQUEST,
    Refused: HTTPStatus.CONFLICT,
    LostRace: HTTPStatus.CONFLICT,
    AlreadyExists: HTTPStatus.CONFLICT,
    Corrupt: HTTPStatus.CONFLICT,
}
_REFUSALS: dict[int | str, dict[str, Any]] = {
    400: {"model": Problem, "description": "It makes no sense as it stands."},
    401: {"model": Problem, "description": "Nobody is logged in."},
    403: {"model": Problem, "description": "The user may not do that, or another site asked for it."},
    404: {"model": Problem, "description": "It is not there, or the user may not see it."},
    409: {"model": Problem, "description": "Understood, and not done, because it would do harm or is too late."},
    503: {"model": Problem, "description": "The metastore or the storage did not answer."},
}
_DESCRIPTION = "Checkpoints of Spark pipelines: what the page shows, and the actions of those who may."


class RedactedResponse(JSONResponse):
    """Whatever is stored may quote somebody's URL: passwords in URLs leave nowhere."""

    def render(self, content: Any) -> bytes:
        return super().render(redact_all(content))


def make_app() -> FastAPI:
    app = FastAPI(
        title="Checkpoints",
        description=_DESCRIPTION,
        version=__version__,
        default_response_class=RedactedResponse,
        dependencies=[Depends(authenticated)],
        responses=_REFUSALS,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
    )
    for each in (pipelines, history, checkpoint, trends, attempts, storage, actions):
        app.include_router(each.router, prefix="/api")
    app.include_router(page.router)
    app.add_api_route("/openapi.json", app.openapi, include_in_schema=False)
    app.add_exception_handler(CkptError, _say)
    return app


async def _say(request: Request, error: Exception) -> JSONResponse:  # noqa: ARG001 - as FastAPI calls it
    status = next(
        (status for kind, status in _STATUS.items() if isinstance(error, kind)), HTTPStatus.SERVICE_UNAVAILABLE
    )
    return JSONResponse({"detail": redact(str(error))}, status_code=status)
