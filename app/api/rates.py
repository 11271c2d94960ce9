"""How many calls each token may make: a bucket a token, counted in this process alone."""

from math import ceil

from app.api.problems import Refusal

#: What a token did not use for so many seconds it may use at once.
BURST_S = 5
TOKENS_KEPT = 10_000
SECOND_NS = 1_000_000_000


class Rates:
    """For each token the moment at which all its calls so far are worked off at the steady rate."""

    def __init__(self, calls_per_s: float) -> None:
        self._calls_per_s = calls_per_s
        self._call_ns = max(1, round(SECOND_NS / calls_per_s))
        # At least one call has to fit into the bucket.
        self._burst_ns = max(BURST_S * SECOND_NS, self._call_ns)
        self._clear_at_ns: dict[bytes, int] = {}
        self._sweep_at = TOKENS_KEPT

    def take(self, token_sha256: bytes, now_ns: int) -> None:
        """Count a call at `now_ns` on a clock that never goes back. Raises Refusal: too_many."""
        clear_at_ns = max(self._clear_at_ns.get(token_sha256, now_ns), now_ns) + self._call_ns
        wait_ns = clear_at_ns - now_ns - self._burst_ns
        if wait_ns > 0:
            retry_after_s = ceil(wait_ns / SECOND_NS)
            raise Refusal(
                "too_many",
                f"this token makes more than {self._calls_per_s:g} calls a second; "
                f"go on in {retry_after_s} s, and list many things in one call where you can",
                calls_per_s=self._calls_per_s,
                retry_after_s=retry_after_s,
            )
        self._clear_at_ns[token_sha256] = clear_at_ns
        if len(self._clear_at_ns) > self._sweep_at:
            self._sweep(now_ns)

    def _sweep(self, now_ns: int) -> None:
        """Forget full buckets: a token that is not known has one."""
        kept = {token: at_ns for token, at_ns in self._clear_at_ns.items() if at_ns > now_ns}
        self._clear_at_ns = kept
        self._sweep_at = max(TOKENS_KEPT, 2 * len(kept))
