"""The OpenAPI document against the API itself: it leaves nothing out and makes nothing up."""

import re
from pathlib import Path
from typing import Any

import pytest

from app.api.app import ApiSettings, create_app
from tests.api.test_refusals import refused
from tests.api.world import Client, World

REFERENCE = Path(__file__).parents[2] / "docs" / "reference-rest.md"
METHODS = {"get", "post", "put", "delete"}


@pytest.fixture
def document(still_world: World) -> Any:
    return Client(still_world.url).get("/schema/openapi.json").body


def operations(document: Any) -> list[tuple[str, str, Any]]:
    return [
        (path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]


def test_every_route_is_described(document: Any) -> None:
    app = create_app(ApiSettings("postgresql://nobody@127.0.0.1:1/none"))
    served = {
        (re.sub(r"\{(\w+):\w+\}", r"{\1}", route.path), method.lower())
        for route in app.routes
        for handler in route.route_handlers
        for method in handler.http_methods
        if method.lower() in METHODS and not route.path.startswith("/schema")
    }
    assert served == {(path, method) for path, method, _ in operations(document)}


def told_in_the_reference() -> set[tuple[str, str]]:
    """Every call of its table; `…/x` replaces or follows the last word of the one before it."""
    text = REFERENCE.read_text().partition("## Calls")[2].partition("## Rules")[0]
    found: set[tuple[str, str]] = set()
    for cell in re.findall(r"^\| (.*?) \|", text, re.MULTILINE):
        method = before = ""
        for said in re.findall(r"`([^`]+)`", cell):
            word, _, path = said.rpartition(" ")
            method = word or method or "GET"
            if path.startswith("…/"):
                is_of_item = before.endswith("}")
                path = (before if is_of_item else before.rpartition("/")[0]) + path[1:]
            else:
                before = path.partition("?")[0]
            found.add((path.partition("?")[0], method.lower()))
    return {(path, method) for path, method in found if path.startswith("/")}


def test_the_reference_lists_every_call_and_no_other(document: Any) -> None:
    served = {(anonymous(path), method) for path, method, _ in operations(document)}
    told = {(anonymous(path), method) for path, method in told_in_the_reference()}
    assert sorted(told - {("/schema", "get")}) == sorted(served)


def anonymous(path: str) -> str:
    return re.sub(r"\{\w+\}", "{}", path)


def test_the_queries_described_are_those_that_are_known(still_world: World, document: Any) -> None:
    root = still_world.user("root", is_operator=True)
    for path, method, operation in operations(document):
        if operation.get("security") == []:
            continue
        url = re.sub(r"\{\w+\}", "1", path)
        body = b"{}" if method in {"post", "put"} else None
        reply = root.call(method.upper(), f"{url}?nonsense=1", body, {})
        assert refused(reply) == (422, "unknown_member"), (method, path)
        known = reply.body["detail"].partition("it may have ")[2].split(", ")
        told = [p["name"] for p in operation["parameters"] if p["in"] == "query"]
        assert known == (told or ["nothing"]), (method, path)


def test_every_answer_has_a_shape_unless_there_is_nothing_to_tell(document: Any) -> None:
    for path, method, operation in operations(document):
        assert operation["summary"], path
        (status,) = operation["responses"].keys() - {"default"}
        content = operation["responses"][status].get("content")
        assert (status == "204") == (content is None), (method, path)
        is_bytes = content == {"application/octet-stream": {}}
        assert is_bytes == path.endswith("/output"), path
        if path.startswith("/v1/") and content is not None and not is_bytes:
            assert "$ref" in str(content["application/json"]["schema"]), path
    usage = document["paths"]["/v1/usage"]["get"]["responses"]["200"]["content"]
    assert set(usage) == {"application/json", "text/csv"}


def test_what_takes_a_key_says_so(document: Any) -> None:
    for path, method, operation in operations(document):
        headers = {p["name"] for p in operation["parameters"] if p["in"] == "header"}
        assert ("Idempotency-Key" in headers) == (method != "get"), (method, path)
