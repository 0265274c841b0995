"""StoragePause: grows with failures in a row up to a limit above the clients' default time-out."""

from __future__ import annotations

from broker.service.limits.storage_pause import PAUSE_NS_MAX, PAUSE_NS_MIN, StoragePause

S = 1_000_000_000


def test_first_failure_causes_no_pause() -> None:
    pause = StoragePause()
    pause.add_failed(5 * S)
    assert pause.left_ns(5 * S) == 0


def test_pause_doubles_with_each_failure_up_to_its_limit() -> None:
    pause, now_ns, lengths = StoragePause(), 0, []
    for _ in range(9):
        pause.add_failed(now_ns)
        lengths.append(pause.left_ns(now_ns) // S)
        now_ns += pause.left_ns(now_ns)
    assert lengths == [0, 1, 2, 4, 8, 16, 32, 32, 32]
    assert lengths[1] * S == PAUSE_NS_MIN
    assert lengths[-1] * S == PAUSE_NS_MAX > 30 * S


def test_failures_during_a_pause_do_not_lengthen_it() -> None:
    pause = StoragePause()
    pause.add_failed(0)
    pause.add_failed(0)
    pause.add_failed(S // 2)
    assert pause.left_ns(S // 2) == S // 2
