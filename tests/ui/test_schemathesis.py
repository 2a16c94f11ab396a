"""Whatever is sent to the API, it answers as its schema says, and never with a 500."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.ui.client import program
from tests.ui.people import ADA
from tests.ui.scene import Past

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.mark.slow
def test_no_request_makes_it_fail(app: FastAPI, past: Past, record_property: Callable[[str, object], None]) -> None:
    past.completed()
    past.timed_out("totals/state/1")
    past.trigger()
    past.until_now()
    headers = program(app, ADA).headers
    schema = schemathesis.openapi.from_asgi("/openapi.json", app, headers=headers)
    statuses: Counter[int] = Counter()
    for found in schema.get_all_operations():
        assert isinstance(found, Ok), found
        _ask_anything(found.ok(), headers, statuses)
    assert statuses[200] > 0
    answers = ", ".join(f"{int(status)}: {count}" for status, count in sorted(statuses.items()))
    record_property("answers of the page's API to anything", answers)


def _ask_anything(
    operation: schemathesis.APIOperation[Any, Any, Any, Any],
    headers: dict[str, str],
    statuses: Counter[int],
    examples: int = 20,
) -> None:
    """With names and numbers of its own invention, and with those of the pipeline that is there."""

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(case=operation.as_strategy())
    def ask(case: schemathesis.Case[Any]) -> None:
        for known in ({}, {"pipeline": "orders"}, {"pipeline": "orders", "id": len(statuses) % 3 + 1}):
            case.path_parameters = {**(case.path_parameters or {}), **known} if case.path_parameters else {}
            response = case.call(headers=headers)
            statuses[response.status_code] += 1
            case.validate_response(response, checks=CHECKS)

    ask()
