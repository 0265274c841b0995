"""ZooKeeper's servers and root, from Pulsar's URL and from BookKeeper's URI."""

from __future__ import annotations

import pytest

from foundation.zookeeper.url import ZookeeperUrl, parse_service_uri, parse_store_url


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("zk:one:2181", ZookeeperUrl("one:2181", "")),
        ("zk:one:2181,two:2181/a/b/", ZookeeperUrl("one:2181,two:2181", "/a/b")),
        ("zk:one;two/a", ZookeeperUrl("one,two", "/a")),
        ("zk://one:2181/a", ZookeeperUrl("one:2181", "/a")),
        ("file:/a/b", None),
        ("memory:local", None),
    ],
)
def test_store_url_is_parsed(text: str, url: ZookeeperUrl | None) -> None:
    assert parse_store_url(text) == url


@pytest.mark.parametrize("text", ["zk:", "zk:/chroot", "zk:one,,two", "zk:one//a"])
def test_store_url_is_refused_without_servers_or_with_empty_parts(text: str) -> None:
    with pytest.raises(ValueError, match="allowed is zk:"):
        parse_store_url(text)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("zk+hierarchical://one:2181/ledgers", ZookeeperUrl("one:2181", "/ledgers")),
        ("zk://one:2181;two:2181/a/b/", ZookeeperUrl("one:2181,two:2181", "/a/b")),
        ("zk+null://one,two/ledgers", ZookeeperUrl("one,two", "/ledgers")),
    ],
)
def test_service_uri_is_parsed(text: str, url: ZookeeperUrl) -> None:
    assert parse_service_uri(text) == url


@pytest.mark.parametrize(
    "text", ["one:2181", "etcd://one:2379/x", "zk://one:2181", "zk://one:2181/", "zk:///x", "zk://a;;b/x"]
)
def test_service_uri_is_refused_without_scheme_servers_or_path(text: str) -> None:
    with pytest.raises(ValueError, match="allowed is zk"):
        parse_service_uri(text)


def test_url_is_written_as_it_is_parsed() -> None:
    url = ZookeeperUrl("one:2181,two:2181", "/a/b")
    assert parse_store_url(str(url)) == url
