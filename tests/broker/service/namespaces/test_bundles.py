"""Bundles of a namespace: ranges, hashes of topics and splits, with boundaries that Apache Pulsar 4.2.4 answered."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from broker.service.namespaces.bundles import (
    BUNDLES_MAX,
    HASH_MAX,
    TOPICS_PER_SLICE,
    BoundariesRefused,
    Bundle,
    BundleRefused,
    Bundles,
    KnownBundles,
    OwnedBundles,
    hash_of,
    middle_of,
    topic_with_hash,
)
from broker.service.namespaces.namespaces import NamespaceNotFound, Namespaces
from broker.service.namespaces.stored_forms import BUNDLES_KEY
from foundation.model.topic_name import parse_topic_name

NAME = "persistent://t1/n6/"


def test_topics_are_in_the_bundles_that_pulsar_named() -> None:
    texts = "0x00000000 0x2aaaaaaa 0x3fffffff 0x55555555 0x7fffffff 0xaaaaaaaa 0xbb20c7fb 0xffffffff"
    bundles = Bundles.checked(texts.split())
    named = {
        "a": "0xaaaaaaaa_0xbb20c7fb",
        "b": "0x2aaaaaaa_0x3fffffff",
        "p-partition-1": "0x3fffffff_0x55555555",
        "p": "0xbb20c7fb_0xffffffff",
    }
    assert {local: str(bundles.of(NAME + local)) for local in named} == named
    assert hash_of(NAME + "p-partition-2") == 3649925942


def test_equal_bundles_and_their_halves_have_pulsars_boundaries() -> None:
    three = Bundles.equal(3)
    assert [str(bundle) for bundle in three.all()] == [
        "0x00000000_0x55555555",
        "0x55555555_0xaaaaaaaa",
        "0xaaaaaaaa_0xffffffff",
    ]
    assert [f"{bundle.middle():08x}" for bundle in three.all()[:2]] == ["2aaaaaaa", "7fffffff"]
    last = three.all()[2]
    topics = [NAME + "p-partition-2", NAME + "a", NAME + "__change_events", NAME + "b"]
    hashes = [hash_of(topic) for topic in topics if last.has(topic)]
    assert middle_of(hashes[:1]) is None
    assert f"{middle_of(hashes[1:]):08x}" == "bb20c7fb"


@given(st.integers(1, 300), st.text(max_size=20))
def test_each_topic_is_in_one_bundle(count: int, local: str) -> None:
    bundles, topic = Bundles.equal(count), NAME + local.encode("utf-8", "ignore").decode()
    assert [bundle for bundle in bundles.all() if bundle.has(topic)] == [bundles.of(topic)]
    assert Bundles.stored(bundles.json()) == bundles


@given(st.integers(1, 300), st.integers(0, HASH_MAX - 1), st.integers(1, 1 << 30))
def test_bundles_of_a_part_are_those_with_hashes_of_it(count: int, low: int, size: int) -> None:
    bundles, part = Bundles.equal(count), Bundle(low, min(low + size, HASH_MAX))
    expected = [one for one in bundles.all() if one.low < part.high and part.low < one.high]
    assert bundles.overlapping(part) == expected
    assert (str(part) in bundles) == (part in bundles.all())
    for one in expected:
        assert bundles.overlapping(one) == [one]
        assert str(one) in bundles
        assert Bundle.parsed(str(one)) == one


def test_other_texts_are_no_ranges() -> None:
    assert "0x0_0xf" not in Bundles.equal(1)
    with pytest.raises(BundleRefused, match="Invalid bundle range: 0x0_0xf"):
        Bundle.parsed("0x0_0xf")


def test_stored_number_without_boundaries_is_read() -> None:
    assert Bundles.stored(None) == Bundles.equal(4)
    assert Bundles.stored({"numBundles": 8}) == Bundles.equal(8)
    assert Bundles.stored({"numBundles": 3_000_000}) == Bundles.equal(4)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("xyz", "Invalid bundle range: xyz"),
        ("0x10000000_0x20000000", "Cannot find bundle t/n/0x10000000_0x20000000 in the bundles list"),
        ("0x00000000_0x41000000", "Expected upper boundary of t/n/0x00000000_0x40000000"),
    ],
)
def test_range_that_is_no_bundle_is_refused(text: str, words: str) -> None:
    with pytest.raises(BundleRefused, match=words):
        Bundles.equal(4).find("t/n", text)
    assert Bundles.equal(4).find("t/n", "0xC0000000_0xffffffff") == Bundle(0xC0000000, HASH_MAX)


def test_split_keeps_the_other_boundaries() -> None:
    four = Bundles.equal(4)
    split = four.split(four.all()[0], [5, 9])
    assert split.boundaries == (0, 5, 9, *four.boundaries[1:])
    for outside in (0, 0x40000000, -1, 1 << 40):
        with pytest.raises(BundleRefused, match="not inside"):
            four.split(four.all()[0], [outside])
    with pytest.raises(BundleRefused, match="at most"):
        Bundles.equal(BUNDLES_MAX).split(Bundle(0, 429496), [1])


@pytest.mark.parametrize("texts", [[], ["0x00000000"], ["0x10000000", "0xffffffff"], ["0", "0xffffffff"]])
def test_boundaries_of_a_part_of_the_range_are_refused(texts: list[str]) -> None:
    with pytest.raises(BoundariesRefused):
        Bundles.checked(texts)


def test_owned_bundles_are_those_of_the_topics_and_no_topic_is_looked_at_once_all_are_found() -> None:
    two, first = Bundles.equal(2), Bundles.equal(2).all()[0]
    texts = [
        text for text in (f"{NAME}{number}" for number in range(3 * TOPICS_PER_SLICE)) if first.has(text)
    ]
    owned = OwnedBundles()
    assert sum(1 for _ in owned.add("t1/n6", two, texts[:TOPICS_PER_SLICE])) == 1
    assert owned.names() == ["t1/n6/0x00000000_0x80000000"]
    names = iter([f"{NAME}{number}" for number in range(1_000)])
    list(owned.add("t1/n6", two, names))
    assert owned.names() == ["t1/n6/0x00000000_0x80000000", "t1/n6/0x80000000_0xffffffff"]
    assert len(owned) == 2
    assert sum(1 for _ in names) > 900


async def test_known_bundles_follow_changes_and_deletions_of_the_namespace() -> None:
    namespaces = Namespaces(MemoryMetadataStore(), "c1")
    await namespaces.open()
    await namespaces.create("public/n", {BUNDLES_KEY: Bundles.equal(2).json()})
    known = KnownBundles(namespaces)
    found = known.of("public/n")
    assert found == Bundles.equal(2)
    assert known.of("public/n") is found
    three = Bundles.equal(3).json()
    await namespaces.change_local_policy("public/n", BUNDLES_KEY, lambda _: three, three)
    assert known.of("public/n") == Bundles.equal(3)
    await namespaces.delete("public/n")
    with pytest.raises(NamespaceNotFound):
        known.of("public/n")


@pytest.mark.parametrize("wanted", [0, 1, 0x5AA1FD01, 0x80000000, 2**32 - 1])
def test_topic_with_any_hash_can_be_named(wanted: int) -> None:
    for namespace in ("shop/orders", "a/b"):
        name = topic_with_hash(namespace, wanted)
        assert hash_of(name) == wanted
        assert parse_topic_name(name).namespace == namespace
