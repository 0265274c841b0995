"""Wall clocks that jump both ways: quotas by age follow them, rollover and the search for lost entries do not."""

from __future__ import annotations

from broker.service.lifecycle.hole_rounds import HoleRounds
from broker.service.policies.backlog_quota import HOLD
from tests.broker.managed_ledger.ledger_fakes import World, fill, shape, until
from tests.broker.service.lifecycle.hole_play import PERIOD_S, play
from tests.broker.service.subscriptions.backlog.test_quotas import backlog, may_produce
from tests.fakes.stage import Stage

HOUR_MS = 3_600_000
NS = 1_000_000_000


async def test_quota_by_age_follows_the_clock_both_ways() -> None:
    stage = Stage(quota_age_s=600, quota_age_precise=True, quota_reaction=HOLD)
    topic = await stage.open()
    await backlog(stage, topic, 3)
    stage.wall_ms -= HOUR_MS
    await stage.run(topic.quotas.look())
    assert topic.quotas.oldest_age_s == 0, "messages from the future are new"
    assert await may_produce(stage, topic) is None
    stage.wall_ms += 3 * HOUR_MS
    await stage.run(topic.quotas.look())
    assert topic.quotas.oldest_age_s == 2 * 3600
    assert await may_produce(stage, topic) is not None
    stage.wall_ms -= 2 * HOUR_MS
    await stage.run(topic.quotas.look())
    assert await may_produce(stage, topic) is None, "producers are let in again"


async def test_rollover_by_age_ignores_the_wall_clock() -> None:
    world = World()
    ledger = await world.open(rollover_ns_max=600 * NS)
    await fill(ledger, 1)
    for jump_ms in (1000 * HOUR_MS, -2000 * HOUR_MS):
        world.wall += jump_ms
        ledger.writer.roll_if_due(world.clock.now)
        await fill(ledger, 1)
    assert shape(ledger) == [3]
    world.clock.advance(600 * NS)
    ledger.writer.roll_if_due(world.clock.now)
    await until(lambda: len(ledger.ledgers) == 2)
    await ledger.close()


async def test_search_for_lost_entries_ignores_the_wall_clock() -> None:
    one = await play()
    await one.acknowledge(*one.got())
    rounds = HoleRounds(one.stage.registry, lambda: one.stage.now_ns)
    for jump_ms in (1000 * HOUR_MS, -2000 * HOUR_MS):
        one.stage.wall_ms += jump_ms
        for _ in range(3):
            await one.stage.run(rounds.run())
            await one.stage.settle()
    assert len(one.got()) == 6, "they are not old enough"
    await one.rounds.after(PERIOD_S + 62)
    assert one.got()[6:] == [0, 1, 2, 3]
