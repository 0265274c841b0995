"""Names of topics, with and without those that belong to brokers."""

from __future__ import annotations

from broker.service.topics.namespace_names import without_system


def test_system_topics_are_left_out_and_others_that_look_like_them_stay() -> None:
    kept = ["persistent://t/n/a", "persistent://t/n/__mine", "non-persistent://t/n/x__change_events"]
    system = ["persistent://t/n/__change_events", "persistent://t/n/__change_events-partition-3"]
    assert without_system([*kept, *system]) == kept
