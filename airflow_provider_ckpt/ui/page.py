"""The page itself: one document, and the modules, styles and pictures beside it."""

from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, HTTPException
from fastapi import Path as PathParameter
from fastapi.responses import Response

router = APIRouter(include_in_schema=False)
_STATIC = Path(__file__).parent / "static"
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "private, max-age=0, must-revalidate",
}


@router.get("/")
def get_page() -> Response:
    return _serve("index.html")


@router.get("/static/{name:path}")
def get_file(name: Annotated[str, PathParameter(max_length=100)]) -> Response:
    if name not in _names():
        raise HTTPException(HTTPStatus.NOT_FOUND, "There is no such file.")
    return _serve(name)


def _serve(name: str) -> Response:
    file = _STATIC / name
    return Response(file.read_bytes(), media_type=_TYPES[file.suffix], headers=_HEADERS)


@cache
def _names() -> frozenset[str]:
    """What may be served: what is there, by its exact name."""
    return frozenset(str(file.relative_to(_STATIC)) for file in _STATIC.rglob("*") if file.suffix in _TYPES)
