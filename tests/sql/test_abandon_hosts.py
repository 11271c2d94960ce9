"""Hosts of which their machine's administrator knows that nothing lives there any more."""

from pathlib import Path

import pytest

from app.daemons.up_cluster import take_over_hosts
from app.daemons.up_folder import UpFolder
from app.daemons.up_wishes import UpError
from app.db.administration import Administration
from tests.sql.test_hosts import state_of
from tests.support.story import Story


@pytest.fixture
def data(tmp_path: Path) -> UpFolder:
    return UpFolder(tmp_path)


def serve(story: Story, host: str, folder: str) -> None:
    story.conn.execute(
        "update xce.incarnation set run_folder = %s where host_id = %s",
        (folder, story.hosts[host]),
    )


def abandon(story: Story, **folders: str) -> list[str]:
    return list(story.one("select xce.abandon_hosts(%s, %s)", [*folders], [*folders.values()]))


def test_its_tasks_are_lost_and_its_room_is_free(story: Story) -> None:
    job = story.running_job({"h1": 1, "h2": 2}, max_tasks=5, on_host_loss="shrink")
    other = story.running_job({"h2": 1}, on_host_loss="exit")
    serve(story, "h2", "f2")
    assert "xce_plan" in abandon(story, h2="f2")
    assert state_of(story, "h2") == "lost"
    assert story.tasks(job) == {0: "running", 1: "lost", 2: "lost"}
    assert story.tasks(other) == {0: "lost"}
    assert story.free("h2") == 4
    # A second time there is nothing to do, and that is no error.
    abandon(story, h2="f2")
    assert state_of(story, "h2") == "lost"


def test_what_is_assigned_is_withdrawn_and_what_is_held_waits_again(story: Story) -> None:
    job = story.running_job({"h1": 1}, max_tasks=9)
    assigned = story.grow(job, 1)
    story.place(assigned, {"h2": 1})
    held = story.grow(job, 2)
    story.place(held, {"h2": 1, "h3": 1}, commit=False)
    serve(story, "h2", "f2")
    abandon(story, h2="f2")
    assert story.tasks(job) == {0: "running", 1: "withdrawn"}
    assert (story.request(assigned)["state"], story.request(held)["state"]) == ("failed", "pending")
    assert (story.free("h2"), story.free("h3")) == (4, 4)


def test_several_at_once_with_a_request_that_spans_them(story: Story) -> None:
    job = story.running_job({"h1": 1, "h2": 1, "h3": 1}, max_tasks=9, on_host_loss="shrink")
    held = story.grow(job, 2)
    story.place(held, {"h2": 1, "h3": 1}, commit=False)
    serve(story, "h2", "f2")
    serve(story, "h3", "f3")
    abandon(story, h3="f3", h2="f2")
    assert [state_of(story, host) for host in ("h1", "h2", "h3")] == ["up", "lost", "lost"]
    assert story.tasks(job) == {0: "running", 1: "lost", 2: "lost"}
    assert (story.free("h2"), story.free("h3")) == (4, 4)


def test_a_host_that_another_folder_serves_is_left_alone(story: Story) -> None:
    job = story.running_job({"h2": 1})
    serve(story, "h2", "theirs")
    assert abandon(story, h2="ours", nobody="ours") == []
    assert (state_of(story, "h2"), story.tasks(job)) == ("up", {0: "running"})


@pytest.mark.parametrize(
    ("since_s", "fence", "is_taken"),
    # 300 s of fence, 10 s of grace, 5 s more.
    [(0, "stop", False), (310, "stop", False), (316, "stop", True), (9999, "keep", False)],
)
def test_another_folders_tasks_are_taken_over_once_their_fence_is_over(
    story: Story, data: UpFolder, since_s: int, fence: str, is_taken: bool
) -> None:
    job = story.running_job({"h1": 1}, fence=fence, grace_s=10, on_host_loss="exit")
    serve(story, "h1", "theirs")
    story.conn.execute(
        "update xce.heartbeat set last_seen_at = clock_timestamp() - make_interval(secs => %s)",
        (since_s,),
    )
    administration = Administration(story.conn, "")
    said: list[str] = []
    if is_taken:
        take_over_hosts(administration, data, ["h1"], said.append)
        assert "h1" in said[0]
    else:
        with pytest.raises(UpError, match="h1 may live under another --data folder"):
            take_over_hosts(administration, data, ["h1"], said.append)
    assert story.tasks(job) == {0: "lost" if is_taken else "running"}
