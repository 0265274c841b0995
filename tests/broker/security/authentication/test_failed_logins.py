"""FailedLogins: the first failures are free, later ones wait, time forgives, memory is bounded."""

from __future__ import annotations

from broker.security.authentication.failed_logins import (
    COUNT_MAX,
    DELAY_NS_MAX,
    FORGIVEN_NS,
    FREE,
    HOSTS_MAX,
    STEP_NS,
    FailedLogins,
)


def test_delay_grows_with_the_failures_up_to_a_limit() -> None:
    failed = FailedLogins()
    delays = [failed.failed("a", 0) for _ in range(10_000)]
    assert delays[:FREE] == [0] * FREE
    assert delays[FREE : FREE + 3] == [STEP_NS, 2 * STEP_NS, 3 * STEP_NS]
    assert max(delays) == delays[-1] == DELAY_NS_MAX
    assert failed.failed("b", 0) == 0, "another address pays nothing"


def test_quiet_time_is_forgiving() -> None:
    failed = FailedLogins()
    for _ in range(10_000):
        failed.failed("a", 0)
    assert failed.failed("a", COUNT_MAX * FORGIVEN_NS) == 0


def test_addresses_are_bounded() -> None:
    failed = FailedLogins()
    for _ in range(FREE + 1):
        failed.failed("first", 0)
    for number in range(HOSTS_MAX):
        failed.failed(str(number), 0)
    assert failed.failed("first", 0) == 0, "it was forgotten"
