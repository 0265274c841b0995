"""Composes the cache of a broker: the manager with its policy, and everything that attaches to it.

This is the one place that knows both the core and its attachments:

    EntryCacheManager(policy, listener, bound)
        policy    what the settings name (`policies/make.py`)
        listener  PinnedBytes, the policy `magnetar`, EvictionStats, Decisions and RecordedInputs, combined
        bound     StrictSize under `magnetar`, none otherwise
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from entry_cache.bounds.pinned_bytes import PinnedBytes
from entry_cache.bounds.strict_size import PinnedLevel, StrictSize
from entry_cache.entry_cache_manager import EntryCacheManager
from entry_cache.listener import CombinedListener
from entry_cache.observe.curve import Curves
from entry_cache.observe.decisions import Decisions
from entry_cache.observe.eviction_stats import EvictionStats
from entry_cache.observe.expectations import CountedReads, PositionReads
from entry_cache.policies.make import make_policy
from entry_cache.policy import NO_LIMIT, EvictionPolicy
from entry_cache.policy_names import MAGNETAR
from entry_cache.settings import CacheSettings
from entry_cache.size_bound import ENTRY_OVERHEAD_BYTES

if TYPE_CHECKING:
    from entry_cache.policies.magnetar.magnetar import Magnetar


class ComposedCache:
    """The manager, its attachments, and the passes for the owner's timer."""

    def __init__(
        self,
        settings: CacheSettings,
        decisions: Decisions | None = None,
        *,
        pinned: PinnedLevel | None = None,
        others: tuple[object, ...] = (),
    ) -> None:
        """`others` listen as well. A replay passes `pinned`: the recorded levels instead of buffers."""
        policy = make_policy(settings)
        magnetar = _magnetar(policy) if settings.policy == MAGNETAR else None
        self.decisions = decisions or Decisions(0, lambda: 0)
        """The newest events; their clock is that of the whole cache."""
        expectations = CountedReads() if magnetar is None else PositionReads()
        self.eviction_stats = EvictionStats(self.decisions, expectations)
        """Statistics of passes and removals."""
        self._pinned = PinnedBytes(strict=magnetar is not None)
        inputs = self.decisions.inputs()
        # The order counts: pinned bytes are known before anything is decided, and events are noted after it.
        attached: list[object] = [] if pinned is not None else [self._pinned]
        bound = None
        if magnetar is not None:
            looked_at = None if inputs is None else inputs.pinned_looked_at
            bound = StrictSize(magnetar, pinned or self._pinned, looked_at)
            attached += [magnetar.listener, bound]
        attached += [*others, self.decisions.logs, self.eviction_stats, self.decisions]
        if inputs is not None:
            attached.append(inputs)
        self.manager = EntryCacheManager(
            settings,
            policy,
            CombinedListener(attached),
            bound,
            self.decisions.now_ns,
        )
        """The caches."""
        self.sampling: Curves | None = None
        """The sampling for the miss ratio curve, while somebody looks at it."""

    def tick(self, now_ns: int, visits_max: int = NO_LIMIT) -> bool:
        """Runs the periodic passes, or a slice of them. Returns True if it is to be called again at once."""
        return self._slice(self.manager.eviction.tick, now_ns, visits_max)

    def run_pending(self, now_ns: int, visits_max: int = NO_LIMIT) -> bool:
        """Runs the size checks that inserts asked for. Returns True if it is to be called again at once."""
        return self._slice(self.manager.eviction.run_size_checks, now_ns, visits_max)

    def _slice(self, passes: Callable[[int, int], bool], now_ns: int, visits_max: int) -> bool:
        """Copies slices out of buffers first; while some are left, that alone fills the slice."""
        if self._pinned.copy_out():
            return True
        return passes(now_ns, visits_max) or self._pinned.has_more

    @property
    def inserted_entries(self) -> int:
        """Entries inserted since the start: those that are cached, and those that were removed."""
        return self.manager.entries + sum(self.manager.stats.evicted_entries.values())

    @property
    def changes(self) -> int:
        """Inserts and removals of entries since the start."""
        return self.manager.entries + 2 * sum(self.manager.stats.evicted_entries.values())

    @property
    def queue_length(self) -> int:
        """Slots of the policy, those of invalidated entries included."""
        return len(self.manager.policy)

    @property
    def tombstones(self) -> int:
        """Slots of the policy whose entries were invalidated."""
        return self.queue_length - self.manager.entries

    @property
    def pinned_bytes(self) -> int:
        """Bytes that cached entries keep alive beyond their own: the rest of their receive buffers."""
        return self._pinned.count

    @property
    def charged_bytes(self) -> int:
        """Bytes that count against the size."""
        charged = self.manager.eviction.accounted_bytes
        return charged + self._pinned.count if self.manager.settings.policy == MAGNETAR else charged

    @property
    def memory_bytes(self) -> int:
        """Memory of all cached entries, as far as it is known: their bytes, their objects, and the pinned bytes."""
        manager = self.manager
        return manager.used_bytes + manager.entries * ENTRY_OVERHEAD_BYTES + self._pinned.count


def _magnetar(policy: EvictionPolicy) -> Magnetar:
    # Late, as in `make_policy`, which has imported it.
    from entry_cache.policies.magnetar.magnetar import Magnetar

    assert isinstance(policy, Magnetar)
    return policy
