"""A bucket of calls for each token."""

import pytest

from app.api.problems import Refusal
from app.api.rates import SECOND_NS, TOKENS_KEPT, Rates
from tests.api.test_refusals import refused
from tests.api.world import Client, World, running_api


def taken(rates: Rates, token: bytes, now_s: float, calls: int) -> int:
    """How many of so many calls at one moment were let in."""
    for n in range(calls):
        try:
            rates.take(token, round(now_s * SECOND_NS))
        except Refusal:
            return n
    return calls


@pytest.mark.parametrize(("calls_per_s", "burst"), [(5000, 25_000), (2, 10), (0.5, 2), (0.01, 1)])
def test_a_bucket_holds_five_seconds_and_at_least_one_call(calls_per_s: float, burst: int) -> None:
    rates = Rates(calls_per_s)
    assert taken(rates, b"a", 100.0, 30_000) == burst
    assert taken(rates, b"b", 100.0, 1) == 1
    assert taken(rates, b"a", 100.0 + 1 / calls_per_s, 2) == 1
    assert taken(rates, b"a", 1e6, 30_000) == burst


def test_the_refusal_says_when_to_go_on() -> None:
    rates = Rates(0.1)
    assert taken(rates, b"a", 0.0, 2) == 1
    with pytest.raises(Refusal) as caught:
        rates.take(b"a", 4_500_000_000)
    assert caught.value.figures["retry_after_s"] == 6
    rates.take(b"a", 10_500_000_000)


def test_tokens_that_nobody_uses_are_forgotten() -> None:
    rates = Rates(1000)
    for n in range(2 * TOKENS_KEPT):
        rates.take(b"%d" % n, n * SECOND_NS)
    assert len(rates._clear_at_ns) <= TOKENS_KEPT + 1


def test_too_many_calls_are_refused_token_by_token_and_change_nothing(world: World) -> None:
    alice, bob = world.token("alice", "owner"), world.token("bob", "owner")
    with running_api(world.database.url, calls_per_s=0.2) as url:
        client = Client(url, alice)
        assert client.post("/v1/jobs", {"command": ["true"]}).status == 201
        reply = client.post("/v1/jobs", {"command": ["true"]})
        assert refused(reply) == (429, "too_many")
        assert 1 <= int(reply.headers["Retry-After"]) <= 5
        assert "go on in" in reply.body["detail"]
        assert Client(url, bob).get("/v1/jobs").status == 200
        assert Client(url).get("/healthz").status == 200
    assert world.count("job") == 1
