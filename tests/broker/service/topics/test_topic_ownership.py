"""Addresses of brokers."""

from __future__ import annotations

import pytest

from broker.service.topics.topic_ownership import Addresses, Listener

URL, TLS = "pulsar://host:6650", "pulsar+ssl://host:6651"


@pytest.mark.parametrize("listener", [Listener(URL), Listener("", TLS), Listener(URL, TLS)])
def test_listener_with_the_urls_of_the_data_ports_adds_none(listener: Listener) -> None:
    assert not Addresses(URL, service_url_tls=TLS).has_further_urls
    assert not Addresses(URL, service_url_tls=TLS, listeners={"internal": listener}).has_further_urls


@pytest.mark.parametrize(
    "listener", [Listener("pulsar://outside:6650"), Listener(URL, "pulsar+ssl://outside:6651")]
)
def test_listener_with_another_url_adds_it(listener: Listener) -> None:
    listeners = {"internal": Listener(URL, TLS), "outside": listener}
    assert Addresses(URL, service_url_tls=TLS, listeners=listeners).has_further_urls
