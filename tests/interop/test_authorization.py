"""Rights of roles as an official client meets them: refusals, withdrawal, and the audit trail.

Rule of this file: roles prove themselves with tokens, an administrator grants and withdraws over REST.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pulsar
import pytest

from broker.config.security_keys import TLS_PROVIDER
from tests.interop.support import Admin, open_url, wait_until
from tests.support.certificates import Certificates
from tests.support.command_json import Json
from tests.support.tokens import SECRET_URL, peer_settings, token
from tests.vectors.broker_process import BrokerProcess

SETTINGS = {
    "authenticationEnabled": "true",
    "authenticationProviders": "org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
    "tokenSecretKey": SECRET_URL,
    "authorizationEnabled": "true",
    "superUserRoles": "admin",
    **peer_settings(token({"sub": "admin"})),
}
GRANTS = "namespaces/public/default/permissions"


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path, SETTINGS) as broker:
        yield broker


def ask(broker: BrokerProcess, role: str, method: str, path: str, body: Json = None) -> int:
    """The status of a request in the name of a role."""
    request = urllib.request.Request(
        f"{broker.addresses.admin}/admin/v2/{path}",
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json", "Authorization": f"Bearer {token({'sub': role})}"},
    )
    try:
        with open_url(request) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def client_of(broker: BrokerProcess, role: str) -> pulsar.Client:
    return pulsar.Client(
        broker.addresses.pulsar,
        authentication=pulsar.AuthenticationToken(token({"sub": role})),
        operation_timeout_seconds=60,
    )


def test_role_without_a_right_is_refused(guarded: BrokerProcess) -> None:
    assert ask(guarded, "admin", "POST", f"{GRANTS}/producer", ["produce"]) == 204
    stranger, producer = client_of(guarded, "stranger"), client_of(guarded, "producer")
    try:
        producer.create_producer("kept").send(b"x")
        with pytest.raises(pulsar.AuthorizationError):
            stranger.create_producer("kept")
        with pytest.raises(pulsar.AuthorizationError):
            producer.subscribe("kept", "s")
    finally:
        stranger.close()
        producer.close()


def test_missing_tenant_is_told_and_missing_namespace_is_refused(guarded: BrokerProcess) -> None:
    client = client_of(guarded, "stranger")
    try:
        with pytest.raises(pulsar.TopicNotFound):
            client.create_producer("nosuch/nosuch/t")
        with pytest.raises(pulsar.AuthorizationError):
            client.create_producer("public/nosuch/t")
    finally:
        client.close()


def test_withdrawn_right_ends_an_open_producer_and_an_open_consumer(guarded: BrokerProcess) -> None:
    assert ask(guarded, "admin", "POST", f"{GRANTS}/app", ["produce", "consume"]) == 204
    client = client_of(guarded, "app")
    try:
        consumer = client.subscribe("ended", "s")
        client.create_producer("ended").send(b"before")
        # Its time runs from the `send` below, which is to fail.
        impatient = client.create_producer("ended", send_timeout_millis=2000)
        assert consumer.receive(60_000).data() == b"before"
        assert ask(guarded, "admin", "DELETE", f"{GRANTS}/app") == 204
        wait_until(lambda: _clients(guarded) == (0, 0), "producer and consumer have left")
        with pytest.raises(pulsar.PulsarException):
            impatient.send(b"after")
        # The client asks again for ever; nothing it asks for may come back.
        assert _clients(guarded) == (0, 0)
    finally:
        client.close()


def test_certificate_of_a_name_that_lost_its_right_is_refused(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path / "certificates")
    settings = {
        **SETTINGS,
        "authenticationProviders": f"{SETTINGS['authenticationProviders']},{TLS_PROVIDER}",
        "brokerServicePortTls": "0",
        "tlsCertificateFilePath": str(certificates.server),
        "tlsKeyFilePath": str(certificates.key(certificates.server)),
        "tlsTrustCertsFilePath": str(certificates.authority),
    }
    with BrokerProcess(tmp_path, settings, memory=True) as broker:
        assert ask(broker, "admin", "POST", f"{GRANTS}/client", ["produce", "consume"]) == 204
        proof = pulsar.AuthenticationTLS(str(certificates.client), str(certificates.key(certificates.client)))
        client = pulsar.Client(
            broker.addresses.pulsar_tls,
            authentication=proof,
            tls_trust_certs_file_path=str(certificates.authority),
            operation_timeout_seconds=60,
        )
        try:
            client.create_producer("ended").send(b"x")
            assert ask(broker, "admin", "DELETE", f"{GRANTS}/client") == 204
            wait_until(lambda: _clients(broker) == (0, 0), "the producer has left")
            with pytest.raises(pulsar.AuthorizationError):
                client.create_producer("another")
        finally:
            client.close()


def _clients(broker: BrokerProcess) -> tuple[int, int]:
    """The numbers of producers and consumers of the topic `ended`, as the broker's metrics count them."""
    counts = Counter[str]()
    for sample in Admin.of(broker).samples():
        if sample.labels.get("topic", "").endswith("/ended"):
            counts[sample.name] += int(sample.value)
    return counts["pulsar_producers_count"], counts["pulsar_consumers_count"]


def test_permissions_survive_a_killed_broker_and_end_with_their_topic(guarded: BrokerProcess) -> None:
    topic = "persistent/public/default/short"
    assert ask(guarded, "admin", "PUT", topic) == 204
    assert ask(guarded, "admin", "POST", f"{topic}/permissions/app", ["produce"]) == 204
    guarded.kill()
    guarded.start()
    assert ask(guarded, "app", "GET", f"{topic}/partitions") == 200
    assert ask(guarded, "app", "DELETE", topic) == 403
    assert ask(guarded, "admin", "DELETE", topic) == 204
    assert ask(guarded, "admin", "PUT", topic) == 204
    assert ask(guarded, "app", "GET", f"{topic}/partitions") == 401


def test_audit_trail_names_writes_and_refusals(guarded: BrokerProcess) -> None:
    assert ask(guarded, "admin", "PUT", "tenants/t2", {"allowedClusters": ["standalone"]}) == 204
    assert ask(guarded, "evil\nrole", "DELETE", "tenants/t2") == 401
    guarded.stop()
    lines = [json.loads(line) for line in guarded.log_lines() if '"magnetar.audit"' in line]
    shown = [
        (line["role"], line["action"], line["target"], line["status"], line["outcome"]) for line in lines
    ]
    assert shown == [
        ("admin", "PUT", "/admin/v2/tenants/t2", 204, "done"),
        # Authentication refuses a role with a newline, so it never gets as far as a name in the trail.
        ("", "DELETE", "/admin/v2/tenants/t2", 401, "refused"),
    ]
    assert all(line["peer"].startswith("127.0.0.1:") for line in lines)


def test_role_expires_all_subscriptions_only_if_it_may_use_each(guarded: BrokerProcess) -> None:
    topic = "persistent/public/default/expiring"
    assert ask(guarded, "admin", "POST", f"{GRANTS}/app", ["consume"]) == 204
    assert ask(guarded, "admin", "PUT", topic) == 204
    for name in ("own", "other"):
        assert ask(guarded, "admin", "PUT", f"{topic}/subscription/{name}") == 204
    expire = f"{topic}/all_subscription/expireMessages/3600"
    # 409: there is nothing to expire, so the right was there.
    assert ask(guarded, "app", "POST", expire) in (204, 409)
    assert ask(guarded, "admin", "POST", f"{GRANTS}/subscription/other", ["somebody"]) == 204
    assert ask(guarded, "app", "POST", expire) == 401
    assert ask(guarded, "app", "POST", f"{topic}/subscription/own/expireMessages/3600") in (204, 409)
    assert ask(guarded, "admin", "POST", expire) in (204, 409)


def test_rights_to_a_missing_topic_are_granted_when_a_setting_allows_it(tmp_path: Path) -> None:
    granted = "persistent/public/default/later/permissions"
    with BrokerProcess(tmp_path, {**SETTINGS, "allowAclChangesOnNonExistentTopics": "true"}) as broker:
        assert ask(broker, "admin", "POST", f"{granted}/app", ["produce"]) == 204
        assert ask(broker, "admin", "GET", granted) == 200
        client = client_of(broker, "app")
        try:
            client.create_producer("later").send(b"x")
        finally:
            client.close()
        assert ask(broker, "admin", "DELETE", f"{granted}/app") == 204


def test_rights_to_a_missing_topic_are_refused_by_default(guarded: BrokerProcess) -> None:
    granted = "persistent/public/default/later/permissions"
    assert ask(guarded, "admin", "POST", f"{granted}/app", ["produce"]) == 404
    assert ask(guarded, "admin", "GET", granted) == 404
