"""Topic names: completed as clients do, refused with a reason, and back again from what is stored."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.model.errors import InvalidTopicName
from foundation.model.topic_name import (
    TopicName,
    check_new_name,
    check_new_namespace_part,
    parse_topic_name,
)


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


CONTROLS = ["\n", "\r\n", "\x1b[2J", "\x7f", "\x85", "\u2028", "\0"]


@pytest.mark.parametrize("control", CONTROLS)
def test_new_name_with_control_characters_is_refused_and_shown_escaped(control: str) -> None:
    with pytest.raises(InvalidTopicName) as refused:
        check_new_name("Topic", f"a{control}b")
    assert str(refused.value).isprintable()
    assert str(refused.value).startswith("Topic name a\\")
    with pytest.raises(InvalidTopicName) as refused:
        parse_topic_name(f"t{control}/n/x")
    assert str(refused.value).isprintable()
    # A name that was stored before is still found.
    assert parse_topic_name(f"t/n/a{control}b").local == f"a{control}b"


@pytest.mark.parametrize("name", ["a b", "ä", "a\\nb", "...", "x" * 300])
def test_new_name_may_have_what_pulsar_allows(name: str) -> None:
    check_new_name("Topic", name)


@pytest.mark.parametrize("name", [".", ".."])
def test_new_name_is_refused_that_clients_take_for_a_folder(name: str) -> None:
    with pytest.raises(InvalidTopicName, match="Subscription name is not valid: clients take"):
        check_new_name("Subscription", name)
    # A name that was stored before is still found.
    assert parse_topic_name(f"t/n/{name}").local == name


@pytest.mark.parametrize("name", [".", "..", "", "a/b", "ä", "a\n"])
def test_new_tenant_is_refused_with_a_name_that_no_path_can_have(name: str) -> None:
    with pytest.raises(InvalidTopicName, match="Tenant name is not valid"):
        check_new_namespace_part("Tenant", name)


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
