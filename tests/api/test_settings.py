"""Settings over REST, for operators; nonsense changes nothing."""

from typing import Any

import pytest

from tests.api.test_refusals import refused
from tests.api.world import Client, World


def test_a_setting_is_changed_and_says_by_whom(world: World, operator: Client) -> None:
    reply = operator.put("/v1/settings/poll_s", {"value": 2.5})
    assert (reply.status, reply.body["value"], reply.body["changed_by"]) == (200, 2.5, "root")
    listed = {item["name"]: item for item in operator.get("/v1/settings").body["items"]}
    assert listed["poll_s"] == reply.body
    assert (listed["silent_s"]["value"], listed["silent_s"]["changed_by"]) == (30, None)
    assert listed["silent_s"]["why"]
    assert list(listed) == sorted(listed)


@pytest.mark.parametrize(
    ("name", "body", "answer"),
    [
        ("heartbeat_s", {"value": 11}, (422, "invalid")),
        ("poll_s", {"value": 0}, (422, "invalid")),
        ("poll_s", {"value": 1e300}, (422, "invalid")),
        ("poll_s", {"value": True}, (422, "invalid")),
        ("poll_s", {"value": "2"}, (422, "invalid")),
        ("poll_s", {}, (422, "invalid")),
        ("poll_s", {"value": 2, "unit": "h"}, (422, "unknown_member")),
        ("nonsense", {"value": 2}, (404, "not_found")),
        ("%00", {"value": 2}, (404, "not_found")),
    ],
)
def test_nonsense_is_refused_and_changes_nothing(
    still_world: World, name: str, body: Any, answer: tuple[int, str]
) -> None:
    root = still_world.user("root", is_operator=True)
    before = root.get("/v1/settings").body
    assert refused(root.put(f"/v1/settings/{name}", body)) == answer
    assert root.get("/v1/settings").body == before


def test_settings_are_for_operators(still_world: World, reader: Client) -> None:
    assert refused(reader.get("/v1/settings")) == (403, "not_allowed")
    assert refused(reader.put("/v1/settings/poll_s", {"value": 9})) == (403, "not_allowed")
    assert still_world.count("setting_change") == 0
