"""The collector looks at due topics group by group, before it would look at many of them at once."""

from __future__ import annotations

import gc

import pytest

from broker.service.lifecycle.dormancy import AT_ONCE, Dormancy
from broker.service.lifecycle.inactive_topics import InactiveTopicRounds
from tests.fakes.stage import Stage


@pytest.mark.parametrize(("due", "passes"), [(AT_ONCE - 1, 0), (AT_ONCE, 1), (2 * AT_ONCE + 1, 2)])
async def test_pass_over_the_young_objects_follows_each_full_group(
    due: int, passes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, generations = Stage(dormant_after_s=10), list[int]()
    inactive = InactiveTopicRounds(stage.registry, stage.deletions, lambda: stage.now_ns)
    monkeypatch.setattr(gc, "collect", generations.append)
    names = [f"persistent://public/default/gone-{number}" for number in range(due)]
    await stage.run(Dormancy(stage.registry, inactive).do_due(names))
    assert generations == [1] * passes
