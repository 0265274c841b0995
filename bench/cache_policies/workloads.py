"""The workloads: what a broker's cache meets, each small enough to run in seconds.

The rolling restart is the experiment of the proposal's author, scaled down fiftyfold: 4 partitions of the 10, the same
10 subscriptions, 1,000 entries a second of 8 KiB in all and a cache of 5 MB, which holds the same 0.6 seconds of the
stream as 250 MB do at 50,000 a second. In each of three rounds every subscription's consumer is away once, one after
another.
"""

from __future__ import annotations

import numpy as np

from bench.cache_policies.simulation import CursorPlan, TopicPlan, Workload

KIB = 1024
MB = 1_000_000
SUBSCRIPTIONS = 10


def tail(random: np.random.Generator) -> list[TopicPlan]:
    """All subscriptions read at the tail."""
    cursors = tuple(CursorPlan(rate=4000) for _ in range(5))
    return [TopicPlan(rate=500, entry_bytes=KIB, cursors=cursors) for _ in range(4)]


def catch_up(random: np.random.Generator) -> list[TopicPlan]:
    """A backlog has five subscriptions, each a little later than the one before, while others follow the tail."""
    # Starts differ between seeds; otherwise all five seeds would give one result.
    late = tuple(
        CursorPlan(rate=3000, start_s=0.5 * number + float(random.random()) * 0.3) for number in range(5)
    )
    return [
        TopicPlan(rate=200, entry_bytes=KIB, cursors=(*late,), backlog=20_000),
        TopicPlan(rate=500, entry_bytes=KIB, cursors=(CursorPlan(rate=4000),) * 2),
    ]


def key_shared_replay(random: np.random.Generator) -> list[TopicPlan]:
    """A subscription receives a fifth of its entries again after 2.5 s, as Key_Shared redelivers."""
    cursor = CursorPlan(rate=4000, replay_share=0.2, replay_delay_s=2.5, ack_delay_s=3.0)
    return [TopicPlan(rate=400, entry_bytes=KIB, cursors=(cursor, CursorPlan(rate=4000))) for _ in range(3)]


def rolling_restart(random: np.random.Generator) -> list[TopicPlan]:
    """Each subscription is away for half a second, one after another, a quarter of a second apart.

    Entries in flight are unacknowledged and read again.
    """
    topics = []
    shift = float(random.random()) * 0.1
    for _ in range(4):
        cursors = []
        for number in range(SUBSCRIPTIONS):
            down = tuple(
                (begin + shift + 0.25 * number, begin + shift + 0.25 * number + 0.5)
                for begin in (4.0, 10.0, 16.0)
            )
            rate = 500 * float(random.uniform(0.9, 1.1))
            cursors.append(CursorPlan(rate=rate, ack_delay_s=0.08, down=down))
        topics.append(TopicPlan(rate=250, entry_bytes=8 * KIB, cursors=tuple(cursors)))
    return topics


def one_hot_topic(random: np.random.Generator) -> list[TopicPlan]:
    """One topic floods the cache; 10,000 quiet ones are read by two subscribers 0.8 s after each append."""
    flood = TopicPlan(
        rate=3000, entry_bytes=KIB, cursors=(CursorPlan(rate=3200), CursorPlan(rate=3200, start_s=2.0))
    )
    quiet = TopicPlan(
        rate=0.15, entry_bytes=KIB, cursors=(CursorPlan(rate=1000, ack_delay_s=0.02),) * 2, poll_s=0.8
    )
    return [flood, *[quiet] * 10_000]


def dead_cursor(random: np.random.Generator) -> list[TopicPlan]:
    """One subscriber is connected and never reads; another follows at a distance."""
    dead = CursorPlan(rate=0)
    slow = CursorPlan(rate=520, start_s=1.5)
    return [TopicPlan(rate=500, entry_bytes=KIB, cursors=(dead, slow, CursorPlan(rate=4000)))] * 2


def slow_consumer(random: np.random.Generator) -> list[TopicPlan]:
    """One subscriber reads 85 of 100 entries and is slower than the publishers for ever."""
    slow = CursorPlan(rate=425 * float(random.uniform(0.97, 1.03)))
    return [
        TopicPlan(rate=500, entry_bytes=KIB, cursors=(slow, CursorPlan(rate=4000), CursorPlan(rate=4000)))
    ] * 2


def scan(random: np.random.Generator) -> list[TopicPlan]:
    """Two subscribers read the same large backlog, one a fixed number of entries later than the other."""
    first = CursorPlan(rate=2000)
    second = CursorPlan(rate=2000, start_s=1.5 + float(random.random()) * 0.1)
    return [TopicPlan(rate=0, entry_bytes=KIB, cursors=(first, second), backlog=30_000)]


WORKLOADS = (
    Workload("tail", "4 topics, 5 subscriptions each at the tail", 10, 2 * MB, tail),
    Workload("catch-up", "5 subscriptions start one after another on a backlog", 12, 6 * MB, catch_up),
    Workload("scan", "2 subscriptions 3,000 entries apart on a backlog", 16, 3 * MB, scan),
    Workload("Key_Shared replay", "a fifth is read again 2.5 s later", 12, 4 * MB, key_shared_replay),
    Workload("rolling restart", "10 subscriptions, 3 rounds", 20, 5 * MB, rolling_restart),
    Workload("one hot topic", "one of 10,001 topics floods the cache", 8, 4 * MB, one_hot_topic),
    Workload("dead cursor", "a subscriber that never reads", 12, 2 * MB, dead_cursor),
    Workload("slow consumer", "a subscriber at 85 % of the rate", 25, 3 * MB, slow_consumer),
)
