"""The pages under /schema; the browser loads nothing from any other host."""

from functools import cache
from importlib.metadata import version
from importlib.resources import files
from typing import Any

from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import FromPath

from app.api.problems import not_found
from app.wire.encoding import encode

ASSETS = {
    "swagger-ui.css": "text/css; charset=utf-8",
    "swagger-ui-bundle.js": "text/javascript; charset=utf-8",
    "favicon-32x32.png": "image/png",
}
# The browser itself refuses what would come from elsewhere. Swagger styles elements inline.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'"
)
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>xce: REST</title>
<link rel="icon" type="image/png" href="/schema/assets/favicon-32x32.png">
<link rel="stylesheet" href="/schema/assets/swagger-ui.css">
</head>
<body>
<div id="page"></div>
<script src="/schema/assets/swagger-ui-bundle.js"></script>
<script src="/schema/start.js"></script>
</body>
</html>
"""
# Without `validatorUrl: null` the page would ask a server of Swagger's makers to validate.
START = """SwaggerUIBundle({
  url: "/schema/openapi.json", dom_id: "#page", deepLinking: true, validatorUrl: null
});
"""
KEPT = {"Cache-Control": "public, max-age=3600"}


@get("/schema")
async def page() -> Response[bytes]:
    headers = {"Content-Security-Policy": POLICY, "Content-Type": "text/html; charset=utf-8"}
    return Response(PAGE.encode(), headers=headers)


@get("/schema/start.js")
async def start_script() -> Response[bytes]:
    return Response(START.encode(), headers={"Content-Type": ASSETS["swagger-ui-bundle.js"]})


@get("/schema/openapi.json")
async def openapi(openapi_document: NamedDependency[dict[str, Any]]) -> Response[bytes]:
    return Response(encode(openapi_document), headers={"Content-Type": "application/json"})


@get("/schema/assets/{name:str}")
async def asset(name: FromPath[str]) -> Response[bytes]:
    if name not in ASSETS:
        raise not_found("file")
    return Response(_asset(name), headers={"Content-Type": ASSETS[name], **KEPT})


@cache
def _asset(name: str) -> bytes:
    release = version("swagger-ui-bundle-v2")
    folder = files("swagger_ui_bundle").joinpath("vendor", f"swagger-ui-{release}")
    return folder.joinpath(name).read_bytes()


HANDLERS = [page, start_script, openapi, asset]
