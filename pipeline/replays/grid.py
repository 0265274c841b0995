"""Replays a grid of settings over all broker lifetimes, in parallel with Spark.

A Spark task gets paths instead of rows: it reads the files of a broker lifetime itself, makes Accesses once and replays its
share of the settings. All topics of a broker share its cache, so a lifetime cannot be divided; lifetimes are summed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Final, NamedTuple

from pyspark.sql import SparkSession

from broker.config.policy_names import PIP430
from broker.entry_cache.settings import EntryCacheSettings
from broker.recorder.record_reader import BrokerLifetime
from pipeline.replays.accesses import Accesses
from pipeline.replays.making import accesses_of
from pipeline.replays.objects import replay_objects
from pipeline.replays.replay import BY_KERNEL, Outcome, replay_with, scaled
from pipeline.replays.sampling import sampled

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

    def applied_to(self, own: EntryCacheSettings) -> EntryCacheSettings:
        """Return the settings to replay with.

        ValueError for settings that no cache has.
        """
        return replace(
            own,
            policy=own.policy if self.policy is None else self.policy,
            profile=own.profile if self.profile is None else self.profile,
            size_bytes_max=own.size_bytes_max if self.size_bytes is None else self.size_bytes,
            ttl_ns=own.ttl_ns if self.ttl_ns is None else self.ttl_ns,
            requeues_max=own.requeues_max if self.requeues_max is None else self.requeues_max,
            extend_recently_accessed=(
                own.extend_recently_accessed
                if self.extend_recently_accessed is None
                else self.extend_recently_accessed
            ),
        )


@dataclass(frozen=True, slots=True)
class GridRow:
    """The outcome of one set of overrides, summed over all broker lifetimes."""

    overrides: Overrides
    """As given to `replay_grid`."""
    settings: EntryCacheSettings
    """Of the first broker lifetime, as replayed."""
    hits: int
    """Entries read from the cache."""
    misses: int
    """Entries read from bookies."""
    coalesced: int
    """Entries that came with another reader's read from a bookie."""
    miss_bytes: int
    """Bytes read from bookies.

    All four are scaled from the sample to the whole access record.
    """
    peak_bytes: int
    """The largest use of a cache, of the lifetime with the largest."""
    by: str
    """The code that replayed it: "kernel" or "objects"."""

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
    """Return all combinations. A policy may name its profile: `pip430-5.0`."""
    found = []
    for policy, size, ttl, times, extend in product(policies, sizes, ttls_ns, requeues, accessed):
        name, profile = policy, None
        if (
            policy is not None
            and policy.startswith(f"{PIP430}-")
            and policy[len(PIP430) + 1 :] in ("4.2", "5.0")
        ):
            name, profile = PIP430, policy[len(PIP430) + 1 :]
        found.append(Overrides(name, profile, size, ttl, times, extend))
    return found


_Task = tuple[BrokerLifetime, list[tuple[int, Overrides]], float]


class _Replayed(NamedTuple):
    number: int
    """The index of the overrides in the grid."""
    settings: EntryCacheSettings
    outcome: Outcome
    rate: float
    bytes_rate: float
    by: str


def replay_grid(
    spark: SparkSession,
    lifetimes: Sequence[BrokerLifetime],
    wanted: Sequence[Overrides],
    *,
    rate: float = 1.0,
    say: Callable[[str], None] = lambda text: None,
) -> list[GridRow]:
    """Return one row per set of overrides, in their order.

    `rate`: the share of the entries that is replayed. `say` is called with each step. ValueError for settings that no
    cache has.
    """
    # Refuse wrong settings here, in one sentence, instead of in a task with Spark's trace.
    for overrides in wanted:
        overrides.applied_to(own_settings(lifetimes[0]))
    tasks = list(_tasks(lifetimes, wanted, rate, spark.sparkContext.defaultParallelism))
    say(f"replaying {len(wanted)} settings on {len(lifetimes)} broker lifetimes in {len(tasks)} tasks")
    answers: list[list[_Replayed]] = [[] for _ in wanted]
    mapped = spark.sparkContext.parallelize(tasks, len(tasks)).flatMap(_replay_task)
    for done, answer in enumerate(mapped.toLocalIterator(prefetchPartitions=True), 1):
        answers[answer.number].append(answer)
        if done % max(1, len(wanted) // 4) == 0:
            say(f"  {done} of {len(wanted) * len(lifetimes)} replays")
    return [_summed(overrides, found) for overrides, found in zip(wanted, answers, strict=True)]


def own_settings(lifetime: BrokerLifetime) -> EntryCacheSettings:
    """Return the settings that held last."""
    return EntryCacheSettings.from_text(lifetime.files[-1].facts.settings)


def _tasks(
    lifetimes: Sequence[BrokerLifetime], wanted: Sequence[Overrides], rate: float, parallelism: int
) -> Iterator[_Task]:
    """Make enough tasks for all cores.

    Each reads a whole lifetime, so make no more than that.
    """
    numbered = list(enumerate(wanted))
    # With more lifetimes than cores each lifetime is one task, and its files are read once.
    chunks = max(1, min(len(wanted), -(-parallelism // len(lifetimes))))
    for lifetime in lifetimes:
        for chunk in range(chunks):
            yield lifetime, numbered[chunk::chunks], rate


def _replay_task(task: _Task) -> Iterable[_Replayed]:
    lifetime, numbered, rate = task
    own = own_settings(lifetime)
    accesses: Accesses | None = None
    for number, overrides in numbered:
        settings = overrides.applied_to(own)
        # Made by the first setting of the task and shared by the others: reading the files costs more than a
        # replay.
        if accesses is None:
            accesses = accesses_of(lifetime)
            accesses = sampled(accesses, rate) if rate < accesses.rate else accesses
        if settings.policy in BY_KERNEL:
            outcome, by = replay_with(accesses, settings), "kernel"
        else:
            share = scaled(settings, accesses)
            outcome, by = replay_objects(lifetime, share, accesses.tick_ns, accesses.rate), "objects"
        yield _Replayed(number, settings, outcome, accesses.rate, accesses.bytes_rate, by)


def _summed(overrides: Overrides, answers: Sequence[_Replayed]) -> GridRow:
    def total(name: str) -> int:
        return round(sum(answer.outcome.totals[name] / answer.rate for answer in answers))

    settings, by = answers[0].settings, answers[0].by
    # The largest and not the sum: each lifetime had a cache of its own.
    peak = max(round(answer.outcome.peak_bytes / answer.bytes_rate) for answer in answers)
    return GridRow(
        overrides=overrides,
        settings=settings,
        hits=total("hits"),
        misses=total("misses"),
        coalesced=total("coalesced"),
        miss_bytes=total("miss_bytes"),
        peak_bytes=peak,
        by=by,
    )
