"""The listener of the cache: objects attach with the events that they need, and a single one costs no extra call."""

from __future__ import annotations

import inspect

import pytest

from entry_cache.bounds.pinned_bytes import PinnedBytes
from entry_cache.bounds.strict_size import StrictSize
from entry_cache.listener import EVENTS, CacheListener, CombinedListener
from entry_cache.observe.decisions import Decisions
from entry_cache.observe.eviction_stats import EvictionStats
from entry_cache.observe.ledger_logs import LedgerLogs
from entry_cache.observe.recorded_inputs import RecordedInputs
from entry_cache.policies.magnetar.redeliveries import MagnetarListener

ATTACHED = (PinnedBytes, StrictSize, Decisions, RecordedInputs, EvictionStats, LedgerLogs, MagnetarListener)


def parameters(method: object) -> list[tuple[str, object]]:
    assert callable(method)
    return [(one.name, one.kind) for one in inspect.signature(method).parameters.values()]


@pytest.mark.parametrize("attached", ATTACHED)
def test_attached_listener_has_the_signatures_of_the_events(attached: type) -> None:
    heard = [event for event in EVENTS if hasattr(attached, event)]
    assert heard
    for event in heard:
        ours = getattr(attached, event)
        if not isinstance(inspect.getattr_static(attached, event), property):
            assert parameters(ours) == parameters(getattr(CacheListener, event)), event


class Hearing:
    def __init__(self) -> None:
        self.ledgers: list[int] = []

    def ledger_changed(self, cache: object, ledger_id: int, *, opened: bool) -> None:
        self.ledgers.append(ledger_id)


def test_combined_listener_calls_all_that_have_the_event() -> None:
    one, two = Hearing(), Hearing()
    CombinedListener([one, two, object()]).ledger_changed(None, 7, opened=False)  # type: ignore[arg-type]
    assert (one.ledgers, two.ledgers) == ([7], [7])


def test_combined_listener_uses_the_method_of_a_single_listener() -> None:
    one = Hearing()
    assert CombinedListener([one]).ledger_changed == one.ledger_changed


def test_combined_listener_refuses_two_results() -> None:
    decisions = [Decisions(0, lambda: 0) for _ in range(2)]
    with pytest.raises(ValueError, match="run_read"):
        CombinedListener(decisions)


def test_combined_listener_hears_deliveries_if_one_does() -> None:
    recording = Decisions(0, lambda: 0, lambda row: None)
    assert CombinedListener([Hearing(), recording]).hears_deliveries
    assert not CombinedListener([Hearing(), Decisions(0, lambda: 0)]).hears_deliveries


def test_combined_listener_tells_which_events_are_heard() -> None:
    listener = CombinedListener([Hearing()])
    assert listener.hears("ledger_changed")
    assert not listener.hears("cursor_changed")
    assert CacheListener().hears("cursor_changed")
