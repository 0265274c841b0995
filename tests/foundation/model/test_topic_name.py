"""Topic names: completed as clients do, refused with a reason, and back again from what is stored."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.model.errors import InvalidTopicName
from foundation.model.topic_name import TopicName, parse_topic_name


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("x", "persistent://public/default/x"),
        ("t/n/x", "persistent://t/n/x"),
        ("persistent://t/n/x", "persistent://t/n/x"),
        ("non-persistent://t/n/x", "non-persistent://t/n/x"),
    ],
)
def test_parse_completes_short_names(text: str, full: str) -> None:
    assert str(parse_topic_name(text)) == full
    assert parse_topic_name(full) == parse_topic_name(text)


@pytest.mark.parametrize(
    "text",
    ["", "a/b", "file://t/n/x", "persistent://t/n", "persistent://t/n/ ", "persistent://t/c/n/x", "persistent://t t/n/x",
     "persistent://t/ñ/x", "t/n/"],
)  # fmt: skip
def test_parse_refuses_bad_names(text: str) -> None:
    with pytest.raises(InvalidTopicName):
        parse_topic_name(text)


def test_partition_number_is_parsed_from_the_name() -> None:
    base = parse_topic_name("t/n/x")
    assert base.partition == -1
    assert base.base is base
    third = base.with_partition(3)
    assert str(third) == "persistent://t/n/x-partition-3"
    assert (third.partition, third.base) == (3, base)
    for other in ("x-partition-", "x-partition-01", "-partition-1", "x-partition-1-more"):
        assert parse_topic_name(f"t/n/{other}").partition == -1


@given(st.text(min_size=1, max_size=20))
def test_ledger_name_holds_any_local_name(local: str) -> None:
    name = TopicName("persistent", "t", "n", local)
    prefix, _, last = name.ledger_name.rpartition("/")
    assert prefix == "t/n/persistent"
    assert TopicName.local_from_ledger_name(last) == local
