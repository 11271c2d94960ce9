"""Which settings would not work together."""

import pytest

from app.db.administration import setting_faults

GOOD = {"heartbeat_s": 5.0, "silent_s": 30.0, "fence_s": 300.0, "poll_s": 2.0}


def test_the_defaults_are_fine() -> None:
    assert setting_faults(GOOD) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("heartbeat_s", 10.1),
        ("silent_s", 14.9),
        ("fence_s", 14.9),
        ("poll_s", 0.0),
        ("poll_s", -1.0),
    ],
)
def test_nonsense_is_named(name: str, value: float) -> None:
    faults = setting_faults({**GOOD, name: value})
    assert len(faults) == 1
    assert name in faults[0]
