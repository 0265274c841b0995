"""A grid of settings replayed over all runs of a record, in parallel through Spark.

Spark hands out paths, not rows: a task reads a run's files itself, makes Accesses once and replays its share of the
settings. A broker's cache is the unit of coupling, so brokers are summed afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Final, NamedTuple

from pyspark.sql import SparkSession

from broker.entry_cache.policies.names import PIP430
from broker.entry_cache.settings import EntryCacheSettings
from broker.recorder.record_reader import RunOfBroker
from pipeline.replays.accesses import Accesses
from pipeline.replays.making import accesses_of
from pipeline.replays.objects import replay_objects
from pipeline.replays.replay import BY_KERNEL, Outcome, replay_with, scaled
from pipeline.replays.sampling import sampled

NO_TTL_NS: Final = 1 << 60


class Choice(NamedTuple):
    """What to change of each broker's own settings; None = as it was."""

    policy: str | None = None
    profile: str | None = None
    size_bytes: int | None = None
    ttl_ns: int | None = None
    requeues_max: int | None = None
    extend_recently_accessed: bool | None = None

    def of(self, own: EntryCacheSettings) -> EntryCacheSettings:
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
    """One choice over all brokers."""

    choice: Choice
    settings: EntryCacheSettings
    """Of the first broker, as replayed."""
    hits: int
    misses: int
    coalesced: int
    miss_bytes: int
    peak_bytes: int
    """Of the broker that needed most."""
    by: str
    """What replayed it: "kernel" or "objects"."""

    @property
    def reads(self) -> int:
        return self.hits + self.misses + self.coalesced

    @property
    def hit_ratio(self) -> float:
        return self.hits / self.reads if self.reads else 0.0


def choices(
    policies: Sequence[str | None] = (None,),
    sizes: Sequence[int | None] = (None,),
    ttls_ns: Sequence[int | None] = (None,),
    requeues: Sequence[int | None] = (None,),
    accessed: Sequence[bool | None] = (None,),
) -> list[Choice]:
    """All combinations. A policy may name its release: `pip430-5.0`."""
    found = []
    for policy, size, ttl, times, extend in product(policies, sizes, ttls_ns, requeues, accessed):
        name, profile = policy, None
        if (
            policy is not None
            and policy.startswith(f"{PIP430}-")
            and policy[len(PIP430) + 1 :] in ("4.2", "5.0")
        ):
            name, profile = PIP430, policy[len(PIP430) + 1 :]
        found.append(Choice(name, profile, size, ttl, times, extend))
    return found


_Task = tuple[RunOfBroker, list[tuple[int, Choice]], float]


class _Answer(NamedTuple):
    number: int
    """Of the choice."""
    settings: EntryCacheSettings
    outcome: Outcome
    rate: float
    bytes_rate: float
    by: str


def replay_grid(
    spark: SparkSession,
    runs: Sequence[RunOfBroker],
    wanted: Sequence[Choice],
    *,
    rate: float = 1.0,
    say: Callable[[str], None] = lambda text: None,
) -> list[GridRow]:
    """A row for each choice, in their order. `rate`: the share of the entries that is replayed. ValueError for
    settings that no cache has."""
    for choice in wanted:
        choice.of(own_settings(runs[0]))
    tasks = list(_tasks(runs, wanted, rate, spark.sparkContext.defaultParallelism))
    say(f"replaying {len(wanted)} settings on {len(runs)} runs in {len(tasks)} tasks")
    answers: list[list[_Answer]] = [[] for _ in wanted]
    mapped = spark.sparkContext.parallelize(tasks, len(tasks)).flatMap(_replay_task)
    for done, answer in enumerate(mapped.toLocalIterator(prefetchPartitions=True), 1):
        answers[answer.number].append(answer)
        if done % max(1, len(wanted) // 4) == 0:
            say(f"  {done} of {len(wanted) * len(runs)} replays")
    return [_summed(choice, found) for choice, found in zip(wanted, answers, strict=True)]


def own_settings(run: RunOfBroker) -> EntryCacheSettings:
    """Those that held last."""
    return EntryCacheSettings.from_text(run.files[-1].facts.settings)


def _tasks(
    runs: Sequence[RunOfBroker], wanted: Sequence[Choice], rate: float, parallelism: int
) -> Iterator[_Task]:
    """Enough tasks for all cores, and as few readings of each run as that allows."""
    numbered = list(enumerate(wanted))
    chunks = max(1, min(len(wanted), -(-parallelism // len(runs))))
    for run in runs:
        for chunk in range(chunks):
            yield run, numbered[chunk::chunks], rate


def _replay_task(task: _Task) -> Iterable[_Answer]:
    run, numbered, rate = task
    own = own_settings(run)
    accesses: Accesses | None = None
    for number, choice in numbered:
        settings = choice.of(own)
        if accesses is None:
            accesses = accesses_of(run)
            accesses = sampled(accesses, rate) if rate < accesses.rate else accesses
        if settings.policy in BY_KERNEL:
            outcome, by = replay_with(accesses, settings), "kernel"
        else:
            share = scaled(settings, accesses)
            outcome, by = replay_objects(run, share, accesses.tick_ns, accesses.rate), "objects"
        yield _Answer(number, settings, outcome, accesses.rate, accesses.bytes_rate, by)


def _summed(choice: Choice, answers: Sequence[_Answer]) -> GridRow:
    def total(name: str) -> int:
        return round(sum(answer.outcome.totals[name] / answer.rate for answer in answers))

    settings, by = answers[0].settings, answers[0].by
    peak = max(round(answer.outcome.peak_bytes / answer.bytes_rate) for answer in answers)
    return GridRow(
        choice, settings, total("hits"), total("misses"), total("coalesced"), total("miss_bytes"), peak, by
    )
