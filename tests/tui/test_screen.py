"""The first screen on a real API, at both sizes that have to do."""

import re
from typing import Any

import pytest

from tests.api.world import Client, World
from tests.cli.test_watch import answering
from tests.support.proxy import proxy
from tests.tui.builders import answers, host, job
from tests.tui.terminal import LARGE, NEVER_S, SMALL, Terminals
from tui.state import sheets
from tui.watch import Told

BOTH = pytest.mark.parametrize("size", [SMALL, LARGE], ids=["80x24", "120x40"])


def submitted(who: Client, **members: Any) -> int:
    made = who.post("/v1/jobs", {"command": ["true"], **members})
    assert made.status == 201, made.body
    return int(made.body["id"])


@pytest.fixture
def alice(world: World) -> Client:
    return world.user("alice")


@pytest.fixture
def busy(world: World, alice: Client) -> World:
    """Alice's job of three tasks on two hosts with a grow that waits, and one of bob's."""
    world.hosts("h1", cpus=2)
    world.hosts("h2", cpus=4)
    job = submitted(alice, name="train", tasks=3, min_tasks=1, max_tasks=6, env={"A": "b"})
    world.start(job)
    assert alice.post(f"/v1/jobs/{job}/resizes", {"grow": 2}).status == 202
    submitted(world.user("bob"), name="other")
    return world


@BOTH
async def test_an_operator_sees_hosts_jobs_and_who_has_to_move(
    busy: World, terminal: Terminals, size: tuple[int, int]
) -> None:
    async with terminal.open("root", size=size) as at:
        text = await at.shows("train", "h2", "grow", "answered")
        assert f"{busy.url}  root (operator)" in text
        assert re.search(r"hosts +2: 2 up", text)
        assert re.search(r"h1 +up +2/2 ", text)
        assert re.search(r"1 train +alice running +3 +1\.\.6 +5 ", text)
        assert re.search(r"2 other +bob +pending +0 +1\.\.1 +1 ", text)
        assert re.search(r"2 +1 grow +pending +2 +\d+s controller", text)
        assert all(key in text for key in ("Filter", "Refresh", "Quit"))
        lines = at.lines()
        assert (len(lines), {at.app.size.width}) == (size[1], {size[0]})


@BOTH
async def test_an_owner_sees_its_own_jobs(
    busy: World, terminal: Terminals, size: tuple[int, int]
) -> None:
    async with terminal.open("bob", size=size) as at:
        text = await at.shows("other", "h1", "bob (owner)")
        assert "alice" not in text
        assert [cells[2] for cells in at.cells("requests")] == ["start"]
        await at.keys("o")
        await at.shows("Your token")


@BOTH
async def test_an_empty_cluster_says_so(terminal: Terminals, size: tuple[int, int]) -> None:
    async with terminal.open("root", size=size) as at:
        text = await at.shows("hosts  none", "jobs  none", "requests  none")
        assert "nothing is selected" in text
        await at.keys("down", "enter", "escape", "tab", "pagedown", "end", "o", "slash", "x")
        await at.shows("answered")


async def test_the_details_of_what_is_selected_tell_all_of_it(
    busy: World, terminal: Terminals
) -> None:
    async with terminal.open("alice", size=LARGE) as at:
        await at.shows("job 1", "grow 2 waits on")
        await at.keys("enter")
        text = await at.shows("command", "submitted_tasks")
        assert "▶ jobs" not in text
        await at.keys("end")
        await at.shows("loss_grace_s", "(values are not shown)")
        await at.keys("escape", "tab")
        await at.shows("request 2", "place, cancel, amend")
        await at.keys("tab", "down")
        await at.tells("host h2")
        await at.shows("last_seen_at", "drain_wanted")


async def test_what_is_selected_stays_so_when_others_come_and_go(
    busy: World, alice: Client, terminal: Terminals
) -> None:
    async with terminal.open("root", size=LARGE) as at:
        await at.shows("other")
        await at.keys("down")
        await at.tells("job 1")
        new = submitted(alice, name="newest")
        await at.shows("newest")
        assert at.about == "job 1"
        assert [cells[0] for cells in at.cells("jobs")] == [str(new), "2", "1"]
        assert at.table("jobs").key == 1
        busy.user("bob").post("/v1/jobs/2/kill")
        await at.until(lambda text: re.search(r"other +bob +exited", text))
        assert at.table("jobs").key == 1


async def test_until_somebody_moves_the_newest_job_is_the_selected_one(
    busy: World, alice: Client, terminal: Terminals
) -> None:
    async with terminal.open("root", size=LARGE) as at:
        await at.tells("job 2")
        new = submitted(alice)
        await at.tells(f"job {new}")


async def test_what_went_while_it_was_selected_is_told_to_its_end(
    busy: World, alice: Client, terminal: Terminals
) -> None:
    async with terminal.open("alice", size=LARGE) as at:
        await at.shows("train")
        await at.keys("tab", "down")
        await at.tells("request 2")
        alice.post("/v1/resizes/2/cancel")
        text = await at.shows("request 2  (not listed any more)", "requests  none", "cancelled")
        assert "waits_on       nobody" in text


@BOTH
async def test_hostile_names_are_shown_and_not_obeyed(
    world: World, alice: Client, terminal: Terminals, size: tuple[int, int]
) -> None:
    submitted(alice, name="[red]x[/red][@click=app.quit]q")
    submitted(alice, name="a\x1b[2J\x07\nb")
    submitted(alice, name="日本語" * 20, project="default")
    async with terminal.open("alice", size=size) as at:
        text = await at.shows("[red]x[/red]", "a\\x1b[2J\\x07\\nb", "日本語", "…")
        assert text.replace("\n", "").isprintable()
        await at.keys("G")
        await at.tells("job 1")
        await at.keys("slash", *"[red]")
        await at.shows("showing 1 with “[red]”")
        await at.keys("enter", "enter")
        await at.shows("[red]x[/red][@click=app.quit]q")


async def test_a_filter_shows_what_has_all_words(busy: World, terminal: Terminals) -> None:
    async with terminal.open("root", size=LARGE) as at:
        await at.shows("train", "other")
        await at.keys("slash")
        await at.shows("words that a row must have")
        await at.keys(*"bob", "space", *"pend", "enter")
        await at.until(lambda _: [cells[0] for cells in at.cells("jobs")] == ["2"])
        await at.shows("jobs  2: 1 pending, 1 running  | showing 1 with “bob pend”")
        assert len(at.cells("hosts")) == 2
        await at.keys("escape")
        await at.shows("train", "other")


async def test_an_operator_can_look_at_its_own_only(busy: World, terminal: Terminals) -> None:
    submitted(busy.user("root", is_operator=True), name="mine")
    async with terminal.open("root") as at:
        await at.shows("train", "mine")
        await at.keys("o")
        await at.until(lambda text: "train" not in text)
        assert [cells[1] for cells in at.cells("jobs")] == ["mine"]
        assert [cells[1] for cells in at.cells("requests")] == ["3"]
        assert len(at.cells("hosts")) == 2
        await at.keys("o")
        await at.shows("train")


async def test_a_server_that_is_lost_leaves_its_last_answer_and_may_come_back(
    busy: World, alice: Client, terminal: Terminals
) -> None:
    port = int(busy.url.rpartition(":")[2])
    with proxy(("127.0.0.1", port)) as between:
        async with terminal.open("root", url=f"http://127.0.0.1:{between.port}") as at:
            await at.shows("train")
            between.answers_to_lose = 1_000_000
            text = await at.shows("STALE for", "no answer from", "next try in")
            assert "train" in text
            await at.keys("down", "enter")
            await at.shows("job 1", "submitted_tasks")
            await at.keys("escape")
            submitted(alice, name="meanwhile")
            between.answers_to_lose = 0
            await at.keys("r")
            await at.shows("meanwhile")
            await at.until(lambda text: "STALE" not in text)
            assert at.table("jobs").key == 1


async def test_a_server_that_was_never_there_is_no_crash(world: World, terminal: Terminals) -> None:
    async with terminal.open("root", url="http://127.0.0.1:1") as at:
        await at.shows("NO DATA", "127.0.0.1:1", "asking")
        await at.keys("down", "enter", "escape", "q")


async def test_an_answer_that_is_none_of_ours_is_told(terminal: Terminals) -> None:
    with answering("fine", body=b'{"surprise": 1}') as url:
        async with terminal.open("root", url=url) as at:
            await at.shows("NO DATA", "not_xce")


async def test_a_terminal_of_any_size_will_do(busy: World, terminal: Terminals) -> None:
    async with terminal.open("root") as at:
        await at.shows("train")
        for width, height in ((20, 6), (1, 1), (300, 100), (80, 24)):
            await at.pilot.resize_terminal(width, height)
            await at.keys("down", "enter", "end", "escape", "tab")
        await at.shows("train")


async def test_a_revoked_token_is_told_and_the_data_stays(
    busy: World, terminal: Terminals, alice: Client
) -> None:
    async with terminal.open("alice") as at:
        await at.shows("train")
        own = alice.get("/v1/caller").body["id"]
        alice.delete(f"/v1/tokens/{own}")
        text = await at.shows("STALE", "unauthenticated")
        assert "train" in text


async def test_events_make_it_look_before_it_is_time(
    busy: World, alice: Client, terminal: Terminals
) -> None:
    async with terminal.open("root", size=LARGE, interval_s=NEVER_S) as at:
        await at.shows("train")

        def is_seen(text: str) -> bool:
            # Until it listens, each event was before.
            if "called" not in text:
                submitted(alice, name="called")
            return "called" in text

        await at.until(is_seen)
        brief = submitted(alice, name="brief")
        alice.post(f"/v1/jobs/{brief}/kill")
        await at.until(lambda text: re.search(r"brief +alice exited .* killed", text))


async def test_a_key_makes_it_look_before_it_is_time(
    world: World, alice: Client, terminal: Terminals
) -> None:
    async with terminal.open("root", interval_s=NEVER_S) as at:
        await at.shows("jobs  none")
        world.hosts("h9")
        await at.keys("r")
        await at.shows("h9")


async def test_thousands_of_rows_need_no_cap(terminal: Terminals) -> None:
    async with terminal.open("root", interval_s=NEVER_S) as at:
        await at.shows("jobs  none")
        many = answers(
            hosts=[host(key) for key in range(1, 2_001)], jobs=[job(key) for key in range(1, 5_001)]
        )
        at.app.post_message(Told(many, sheets(many), NEVER_S))
        await at.shows("hosts  2000: 2000 up", "jobs  5000: 5000 running", "▶ 5000")
        await at.keys("end")
        await at.shows("▶    1", "     2 ")
        await at.keys("pageup", "up")
        assert at.table("jobs").key == 7
        await at.keys("home")
        await at.shows("▶ 5000")


async def test_quit_ends_it(world: World, terminal: Terminals) -> None:
    for key in ("q", "ctrl+c"):
        async with terminal.open("root") as at:
            await at.shows("answered")
            await at.keys(key)
            assert at.app._exit
