"""Replays a grid of settings over all broker lifetimes, in parallel with Spark.

A Spark task gets the inputs of a broker lifetime (`record_inputs`), makes Accesses once and replays its share of the
settings. All topics of a broker share its cache, so a lifetime cannot be divided; lifetimes are summed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Final, NamedTuple

from broker.recorder.record_reader import BrokerLifetime
from entry_cache.policy_names import PIP430
from entry_cache.profiles import PROFILES
from entry_cache.settings import CacheSettings
from pipeline.replays.inputs import InputBatch
from pipeline.replays.making import make_accesses
from pipeline.replays.objects import replay_objects
from pipeline.replays.record_inputs import RecordInputs, ReplayFunction
from pipeline.replays.replay import BY_KERNEL, Outcome, replay_with, scaled
from pipeline.traces.checking import counted

NO_TTL_NS: Final = 1 << 60
"""A time to live of 36 years."""


class Overrides(NamedTuple):
    """Settings that replace a broker's own; None = the recorded one."""

    policy: str | None = None
    """`entryCachePolicy`."""
    profile: str | None = None
    """Of `pip430`: "4.2" or "5.0"."""
    size_bytes: int | None = None
    """`managedLedgerCacheSizeMB`, in bytes."""
    ttl_ns: int | None = None
    """`managedLedgerCacheEvictionTimeThresholdMillis`, in nanoseconds."""
    requeues_max: int | None = None
    """How often a pass may requeue an entry with expected reads."""
    extend_recently_accessed: bool | None = None
    """True where a pass requeues entries that were read."""

    def applied_to(self, own: CacheSettings) -> CacheSettings:
        """Returns the settings to replay with. ValueError for settings that no cache has."""
        chosen = {name: value for name, value in self._asdict().items() if value is not None}
        if "size_bytes" in chosen:
            chosen["size_bytes_max"] = chosen.pop("size_bytes")
        return replace(own, **chosen)


class BrokerCounts(NamedTuple):
    """The reads of one broker under one set of overrides, summed over its lifetimes."""

    hits: int
    """Entries read from the cache."""
    misses: int
    """Entries read from bookies."""
    coalesced: int
    """Entries that came with another reader's read from a bookie."""
    peak_bytes: int
    """The largest use of its cache."""
    settings: CacheSettings
    """Of its newest lifetime, as replayed."""

    @property
    def hit_ratio(self) -> float:
        """Hits among reads; 0 without reads."""
        return self.hits / max(self.hits + self.misses + self.coalesced, 1)


@dataclass(frozen=True, slots=True)
class GridRow:
    """The outcome of one set of overrides, summed over all broker lifetimes."""

    overrides: Overrides
    """The overrides that `replay_grid` was given."""
    settings: CacheSettings
    """Of the first broker lifetime, as replayed."""
    hits: int
    """Entries read from the cache."""
    misses: int
    """Entries read from bookies."""
    coalesced: int
    """Entries that came with another reader's read from a bookie."""
    miss_bytes: int
    """Bytes read from bookies. All four are scaled from the sample to the whole access record."""
    peak_bytes: int
    """The largest use of a cache, of the lifetime with the largest."""
    by: str
    """The code that replayed it: "kernel" or "objects"."""
    brokers: Mapping[str, BrokerCounts]
    """The same by broker."""
    rate: float
    """The share of the entries that was replayed."""

    @property
    def reads(self) -> int:
        """Entries read."""
        return self.hits + self.misses + self.coalesced

    @property
    def hit_ratio(self) -> float:
        """Hits among reads; 0 without reads."""
        return self.hits / self.reads if self.reads else 0.0


def override_grid(
    policies: Sequence[str | None] = (None,),
    sizes: Sequence[int | None] = (None,),
    ttls_ns: Sequence[int | None] = (None,),
    requeues: Sequence[int | None] = (None,),
    accessed: Sequence[bool | None] = (None,),
) -> list[Overrides]:
    """Returns all combinations. A policy may name its profile: `pip430-5.0`."""
    found = []
    for policy, size, ttl, times, extend in product(policies, sizes, ttls_ns, requeues, accessed):
        profile = next((one for one in PROFILES if policy == f"{PIP430}-{one}"), None)
        found.append(Overrides(policy if profile is None else PIP430, profile, size, ttl, times, extend))
    return found


OBJECT_SETTINGS: Final = 4
"""Settings of a task that the broker's objects replay: each takes long, and progress is told by task."""
OBJECT_REPLAYS: Final = 4_000_000
"""Requests times settings that the broker's objects replay in about a minute on two cores."""
OBJECT_ENTRIES_MIN: Final = 60
"""As ENTRIES_MIN, for `magnetar`.

It chooses among readers, and with fewer entries a single one decides too much: with entries of equal size a sample gave two
points too little in caches of 30 entries, and half a point in caches of 60 (docs/reference/benchmarks.md)."""
ENTRIES_MIN: Final = 10
"""Entries that fit into the sample's share of a cache at least. With fewer, a replay says nothing about the whole cache."""
KERNEL_REQUESTS: Final = 10_000_000
"""Requests of which machine code replays thirty settings in about a minute on two cores."""


class _Replayed(NamedTuple):
    number: int
    """The index of the overrides in the grid."""
    broker: str
    start: str
    settings: CacheSettings
    outcome: Outcome
    rate: float
    bytes_rate: float
    by: str


def replay_grid(
    inputs: RecordInputs,
    wanted: Sequence[Overrides],
    *,
    rate: float | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> list[GridRow]:
    """Returns one row per set of overrides, in their order.

    `rate`: the share of the entries that is replayed; None = all of the inputs. `say` is called with each step. ValueError
    for settings that no cache has.
    """
    # Refuse wrong settings here, in one sentence, instead of in a task with Spark's trace.
    for overrides in wanted:
        overrides.applied_to(own_settings(inputs.lifetimes[0]))
    share = inputs.rate if rate is None else rate
    tasks = [_tasks(lifetime, wanted, inputs) for lifetime in inputs.lifetimes]
    text = f", {100 * share:.3g} % of the entries" if share < 1 else ""
    say(
        f"replaying {counted(len(wanted), 'setting')} on {counted(len(inputs.lifetimes), 'broker lifetime')}{text}"
    )
    answers: list[list[_Replayed]] = [[] for _ in wanted]
    for answer in inputs.replayed(tasks, share, say, by_objects=needs_objects(inputs.lifetimes, wanted)):
        answers[answer.number].append(answer)
    return [_summed(overrides, found) for overrides, found in zip(wanted, answers, strict=True)]


def affordable_rate(
    requests: int, entry_bytes: float, own: CacheSettings, wanted: Sequence[Overrides]
) -> float:
    """Returns the share of the entries of which a grid takes about a minute on two cores.

    It is larger where the smallest cache of the grid would hold fewer than ENTRIES_MIN of the replayed entries, or the
    smallest one for the broker's objects fewer than OBJECT_ENTRIES_MIN.

    `requests`: entries appended or read in the whole access record. `entry_bytes`: the mean size of an entry. `own`: the
    settings that the overrides are applied to.
    """
    settings = [overrides.applied_to(own) for overrides in wanted]
    # Requests and not rows: a sample of a tenth of the entries keeps most rows about runs of eight, each with one entry.
    of_objects = [one for one in settings if one.policy not in BY_KERNEL]
    rate = KERNEL_REQUESTS / max(requests, 1)
    if of_objects:
        rate = min(rate, OBJECT_REPLAYS / max(requests * len(of_objects), 1))
    least = max(
        _least_rate(settings, ENTRIES_MIN * entry_bytes),
        _least_rate(of_objects, OBJECT_ENTRIES_MIN * entry_bytes),
    )
    return min(max(rate, least), 1.0)


def _least_rate(settings: Sequence[CacheSettings], size_bytes: float) -> float:
    """Returns the share of the smallest of these caches that has so many bytes."""
    # A cache of size 0 holds no entry in any sample.
    smallest = min([one.size_bytes_max for one in settings if one.size_bytes_max], default=0)
    return size_bytes / smallest if smallest else 0.0


def needs_objects(lifetimes: Sequence[BrokerLifetime], wanted: Iterable[Overrides]) -> bool:
    """Returns True if machine code cannot replay all of these settings."""
    owns = [own_settings(lifetime) for lifetime in lifetimes]
    return any(one.applied_to(own).policy not in BY_KERNEL for one in wanted for own in owns)


def own_settings(lifetime: BrokerLifetime) -> CacheSettings:
    """Returns the settings that held last."""
    return CacheSettings.from_text(lifetime.files[-1].facts.settings)


def usual_settings(lifetimes: Iterable[BrokerLifetime]) -> CacheSettings:
    """Returns the settings that most brokers had last; of equally many, those of the first broker by name."""
    in_order = sorted(lifetimes, key=lambda one: (one.broker, one.start))
    # The newest lifetime of a broker replaces its older ones.
    found = Counter({one.broker: own_settings(one) for one in in_order}.values())
    return found.most_common(1)[0][0]


def _tasks(
    lifetime: BrokerLifetime, wanted: Sequence[Overrides], inputs: RecordInputs
) -> list[ReplayFunction[_Replayed]]:
    """Divides the settings into enough tasks for all cores.

    Each makes the lifetime's accesses, so make no more than that.
    """
    # With more lifetimes than cores each lifetime is one task.
    per_lifetime = -(-inputs.parallelism // len(inputs.lifetimes))
    own = own_settings(lifetime)
    by_kernel: list[tuple[int, Overrides]] = []
    by_objects: list[tuple[int, Overrides]] = []
    for one in enumerate(wanted):
        (by_kernel if one[1].applied_to(own).policy in BY_KERNEL else by_objects).append(one)
    # The slow ones first, so that no long task begins when all others have ended.
    return [
        partial(_replay_task, numbered[chunk::chunks])
        for numbered, chunks in (
            (by_objects, max(per_lifetime, -(-len(by_objects) // OBJECT_SETTINGS))),
            (by_kernel, per_lifetime),
        )
        for chunk in range(min(chunks, len(numbered)))
    ]


def _replay_task(
    numbered: Sequence[tuple[int, Overrides]],
    lifetime: BrokerLifetime,
    batches: Sequence[InputBatch],
    rate: float,
) -> Iterable[_Replayed]:
    own = own_settings(lifetime)
    settings = [overrides.applied_to(own) for _, overrides in numbered]
    # Shared by all settings of the task: making the accesses costs more than a replay.
    accesses = make_accesses(lifetime, batches, rate)
    # All settings of a task are of one kind, see `_tasks`.
    if settings[0].policy in BY_KERNEL:
        by = "kernel"
        outcomes: Iterable[Outcome] = (replay_with(accesses, one) for one in settings)
    else:
        by = "objects"
        shares = [scaled(one, accesses) for one in settings]
        outcomes = replay_objects(lifetime, batches, shares, accesses.tick_ns)
    for (number, _), one, outcome in zip(numbered, settings, outcomes, strict=True):
        yield _Replayed(
            number, lifetime.broker, lifetime.start, one, outcome, accesses.rate, accesses.bytes_rate, by
        )


def _total(answers: Sequence[_Replayed], name: str) -> int:
    return round(sum(answer.outcome.totals[name] / answer.rate for answer in answers))


def _peak_bytes(answers: Sequence[_Replayed]) -> int:
    # The largest and not the sum: each lifetime had a cache of its own.
    return max(round(answer.outcome.peak_bytes / answer.bytes_rate) for answer in answers)


def _summed(overrides: Overrides, unordered: Sequence[_Replayed]) -> GridRow:
    answers = sorted(unordered, key=lambda one: (one.broker, one.start))
    brokers: dict[str, list[_Replayed]] = {}
    for answer in answers:
        brokers.setdefault(answer.broker, []).append(answer)
    return GridRow(
        overrides=overrides,
        settings=answers[0].settings,
        hits=_total(answers, "hits"),
        misses=_total(answers, "misses"),
        coalesced=_total(answers, "coalesced"),
        miss_bytes=_total(answers, "miss_bytes"),
        peak_bytes=_peak_bytes(answers),
        by=answers[0].by,
        brokers={
            broker: BrokerCounts(
                hits=_total(of_broker, "hits"),
                misses=_total(of_broker, "misses"),
                coalesced=_total(of_broker, "coalesced"),
                peak_bytes=_peak_bytes(of_broker),
                settings=of_broker[-1].settings,
            )
            for broker, of_broker in brokers.items()
        },
        rate=min(answer.rate for answer in answers),
    )
