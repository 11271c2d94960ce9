"""OpenAPI 3.1 of what is served, made of the handlers' own notes and the structs of app.wire."""

import re
from collections.abc import Iterable
from typing import Any, get_args

import msgspec
from litestar.handlers import HTTPRouteHandler
from msgspec import Struct

from app.wire.problem import Problem
from app.wire.reports import UsageBy
from app.worker.tickets import Stream

NOTE = "doc"
REF = "#/components/schemas/{name}"
_PARAMETER = re.compile(r"\{(\w+):\w+\}")
_KINDS: dict[str, dict[str, Any]] = {
    "all": {"type": "boolean", "default": False},
    "limit": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100},
    "by": {"enum": list(get_args(UsageBy)), "default": "project"},
    "tz": {"type": "string", "default": "UTC", "description": "an IANA time zone"},
    "format": {"enum": ["json", "csv"]},
    "follow": {"type": "boolean", "default": False},
    "job_id": {"type": "integer", "minimum": 1},
    "timeout_s": {"type": "number", "minimum": 0, "maximum": 60, "default": 60},
    "offset": {"type": "integer", "default": 0},
    "stream": {"enum": list(get_args(Stream)), "default": "stdout"},
    "attempt": {"type": "integer", "minimum": 1},
    "as_of": {"type": "string", "format": "date-time"},
}


class Note(Struct, frozen=True):
    """What the page tells of a handler."""

    summary: str
    gives: Any
    status: int
    body: type[Struct] | None
    query: tuple[str, ...]
    is_open: bool
    told: str | None
    also: str | None


def doc(  # noqa: PLR0913 - one name for each thing that the page tells
    summary: str,
    *,
    gives: Any,
    status: int = 200,
    body: type[Struct] | None = None,
    query: tuple[str, ...] = (),
    is_open: bool = False,
    told: str | None = None,
    also: str | None = None,
) -> dict[str, Any]:
    """The note of a handler, as its `opt`; `also` is a media type it gives beside JSON."""
    return {NOTE: Note(summary, gives, status, body, query, is_open, told, also)}


def document(handlers: Iterable[HTTPRouteHandler], version: str) -> dict[str, Any]:
    """The OpenAPI document of these handlers."""
    noted = [(handler, handler.opt[NOTE]) for handler in handlers if NOTE in handler.opt]
    shapes = {shape for _, note in noted for shape in (note.gives, note.body) if shape}
    shapes.discard(bytes)
    order = sorted([*shapes, Problem], key=str)
    refs, components = msgspec.json.schema_components(order, ref_template=REF)
    schemas = dict(zip(order, refs, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for handler, note in noted:
        path = _PARAMETER.sub(r"{\1}", sorted(handler.paths)[0])
        for method in handler.http_methods:
            paths.setdefault(path, {})[method.lower()] = _operation(handler, note, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "xce", "version": version, "license": {"name": "Apache-2.0"}},
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(
    handler: HTTPRouteHandler, note: Note, schemas: dict[Any, dict[str, Any]]
) -> dict[str, Any]:
    refused = {"application/problem+json": {"schema": schemas[Problem]}}
    operation: dict[str, Any] = {
        "summary": note.summary,
        "operationId": handler.handler_name.rpartition(".")[2],
        "parameters": _parameters(handler, note),
        "responses": {
            str(note.status): _given(note, schemas),
            "default": {"description": "refused; `code` says why", "content": refused},
        },
    }
    if note.body is not None:
        content = {"application/json": {"schema": schemas[note.body]}}
        is_needed = any(field.required for field in msgspec.structs.fields(note.body))
        operation["requestBody"] = {"required": is_needed, "content": content}
    if note.told is not None:
        operation["description"] = note.told
    if note.is_open:
        operation["security"] = []
    return operation


def _given(note: Note, schemas: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    if note.status == 204:
        return {"description": "done; there is nothing to tell"}
    content: dict[str, Any] = {"text/plain": {}}
    if note.gives is bytes:
        content = {"application/octet-stream": {}}
    elif note.gives:
        content = {"application/json": {"schema": schemas[note.gives]}}
    if note.also is not None:
        content[note.also] = {}
    return {"description": "as it is now", "content": content}


def _parameters(handler: HTTPRouteHandler, note: Note) -> list[dict[str, Any]]:
    names = _PARAMETER.findall(sorted(handler.paths)[0])
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in names
    ]
    in_query = [
        {"name": name, "in": "query", "schema": _KINDS.get(name, {"type": "string"})}
        for name in note.query
    ]
    takes_key = note.body is not None or "DELETE" in handler.http_methods
    headers = ["Idempotency-Key"] if takes_key else []
    if "job_id" in names and note.body is not None:
        headers.append("If-Match")
    in_header = [{"name": name, "in": "header", "schema": {"type": "string"}} for name in headers]
    return [*in_path, *in_query, *in_header]
