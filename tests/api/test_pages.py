"""Health, metrics and the pages about the API."""

import re

from tests.api.world import Client, World, running_api


def test_health_needs_no_token(still_world: World) -> None:
    nobody = Client(still_world.url)
    assert nobody.get("/healthz").body == {"status": "ok"}
    assert nobody.get("/readyz").body == {"status": "ok"}


def test_metrics_are_our_own(still_world: World, reader: Client) -> None:
    reader.get("/v1/jobs")
    reader.get("/v1/jobs/0")
    reply = Client(still_world.url).get("/metrics")
    assert reply.headers["Content-Type"].startswith("text/plain")
    text = reply.body.decode()
    assert 'xce_api_requests_total{method="GET",route="/v1/jobs",status="200"}' in text
    assert 'xce_api_refusals_total{code="not_found"}' in text
    assert "python_info" not in text


def test_the_document_knows_every_route_and_its_structs_are_complete(still_world: World) -> None:
    document = Client(still_world.url).get("/schema/openapi.json").body
    assert document["openapi"].startswith("3.1")
    assert "post" in document["paths"]["/v1/jobs/{job_id}/resizes"]
    named = set(re.findall(r"#/components/schemas/([^'\"]+)", str(document)))
    assert named <= document["components"]["schemas"].keys()
    submit = document["components"]["schemas"]["JobSubmit"]
    assert submit["additionalProperties"] is False


def test_the_page_loads_nothing_from_outside(still_world: World) -> None:
    client = Client(still_world.url)
    page = client.get("/schema")
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    text = page.body.decode()
    links = re.findall(r'(?:src|href)="([^"]+)"', text)
    assert links
    for link in links:
        assert link.startswith("/schema/")
        reply = client.get(link)
        assert (reply.status, bool(reply.body)) == (200, True)
    assert "://" not in text
    assert "validatorUrl: null" in client.get("/schema/start.js").body.decode()
    for name in ("nothing.js", "..%2f__init__.py"):
        assert client.get(f"/schema/assets/{name}").status == 404


def test_without_the_database_it_lives_and_says_that_it_is_not_ready() -> None:
    with running_api("postgresql://nobody@127.0.0.1:1/none") as url:
        client = Client(url, "token")
        assert client.get("/healthz").status == 200
        for reply in (client.get("/readyz"), client.get("/v1/jobs")):
            assert (reply.status, reply.code) == (503, "unavailable")
            assert "Traceback" not in str(reply.body)
