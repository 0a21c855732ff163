"""Requests generated from the OpenAPI schema, valid and invalid, never make the server fail."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import one_of
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
NAMES = {"head": "man_0000", "tail": "woman_0020", "start": "man_0001", "relation": "spouse", "model": "family"}


def insert_real_names(content: Any) -> None:
    """Replace random names, which are always unknown, by real ones to reach more code."""
    if isinstance(content, list):
        for each in content:
            insert_real_names(each)
    elif isinstance(content, dict):
        for key, value in content.items():
            if key in NAMES and isinstance(value, str):
                content[key] = NAMES[key]
            elif key in ("via", "steps") and isinstance(value, list):
                content[key] = [("spouse", "~parent")[len(str(each)) % 2] for each in value]
            else:
                insert_real_names(value)


@pytest.mark.thorough
def test_no_request_makes_the_server_fail(app):
    operations = [each.ok() for each in schemathesis.openapi.from_asgi("/openapi.json", app).get_all_operations()]
    assert len(operations) >= 25
    for operation in operations:

        @settings(
            max_examples=20, derandomize=True, phases=[Phase.generate],
            suppress_health_check=list(HealthCheck), database=None,
        )  # fmt: skip
        @given(one_of(operation.as_strategy(generation_mode=mode) for mode in GenerationMode))
        def send(case: Any) -> None:
            case.call_and_validate(app=app, checks=CHECKS)
            insert_real_names(case.query)
            insert_real_names(case.body)
            if "name" in (case.path_parameters or {}):
                case.path_parameters["name"] = "spouse" if "relations" in case.operation.path else "man_0000"
            case.call_and_validate(app=app, checks=CHECKS)

        send()
