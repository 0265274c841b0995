"""PublishBuffer: connections wait above the limit until half is free or the limit changes."""

from __future__ import annotations

import pytest

from broker.service.limits.publish_buffer import PublishBuffer


class Reader:
    resumed = 0

    def resume_publishing(self) -> None:
        self.resumed += 1


@pytest.mark.parametrize(("limit", "resumed"), [(150, 0), (300, 1), (0, 1)])
def test_larger_limit_resumes_waiting_connections(limit: int, resumed: int) -> None:
    buffer, reader = PublishBuffer(100), Reader()
    assert buffer.take(120)
    buffer.wait(reader)
    buffer.resize(limit)
    assert reader.resumed == resumed
    assert not buffer.take(10)


def test_smaller_limit_acts_on_later_messages() -> None:
    buffer = PublishBuffer(0)
    assert not buffer.take(120)
    buffer.resize(100)
    assert buffer.take(1)
    reader = Reader()
    buffer.wait(reader)
    buffer.give_back(70)
    assert reader.resumed == 0
    buffer.give_back(1)
    assert reader.resumed == 1
