"""Which settings would not work together, and who changed which."""

from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.support.story import Story


def write(story: Story, **changes: float) -> Any:
    return story.one("select xce.write_settings(%s, %s)", Jsonb(changes), story.user("root"))


def values(story: Story) -> dict[str, Any]:
    return {row["name"]: row["value"] for row in story.rows("select * from xce.setting")}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"heartbeat_s": 10.1}, "heartbeat_s 10.1 is more than a third of silent_s 30"),
        ({"silent_s": 14.9}, "heartbeat_s 5 is more than a third of silent_s 14.9"),
        ({"fence_s": 14.9}, "heartbeat_s 5 is more than a third of fence_s 14.9: keepers"),
        ({"poll_s": 0}, "poll_s must be at least 0.01"),
        ({"poll_s": -1}, "poll_s must be at least 0.01"),
        ({"poll_s": 3601}, "poll_s must be at most 3600"),
        ({"worker_poll_s": 1e8}, "worker_poll_s must be at most 3600"),
        ({"lease_s": 1e300}, "lease_s must be at most 3600"),
        ({"silent_s": 604801}, "silent_s must be at most 604800"),
        ({"fence_s": 31536001}, "fence_s must be at most 31536000"),
        ({"key_keep_days": 0}, "key_keep_days must be above 0"),
        ({"history_keep_days": 1e6}, "history_keep_days must be at most 100000"),
        ({"nonsense": 1, "poll_s": 3}, "there is no setting nonsense; there are fence_s, "),
    ],
)
def test_nonsense_is_named_and_nothing_is_changed(
    story: Story, changes: dict[str, float], said: str
) -> None:
    before = values(story)
    assert said in write(story, **changes)
    assert values(story) == before
    assert story.one("select count(*) from xce.setting_change") == 0


def test_settings_that_only_fit_together_are_changed_together(story: Story) -> None:
    assert write(story, heartbeat_s=20) is not None
    assert write(story, heartbeat_s=20, silent_s=60) is None
    assert (values(story)["heartbeat_s"], values(story)["silent_s"]) == (20, 60)


def test_each_change_is_kept_with_who_made_it(story: Story) -> None:
    write(story, poll_s=3)
    write(story, poll_s=3)
    write(story, poll_s=2.5)
    kept = story.rows("select name, value_before, value, user_id from xce.setting_change")
    assert [(row["value_before"], row["value"]) for row in kept] == [(2, 3), (3, 2.5)]
    assert {row["user_id"] for row in kept} == {story.users["root"]}
