"""Names that clients choose and that other programs stumble over: dots, escapes, every script, control characters."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import sys
import unicodedata
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Final
from urllib.parse import quote

import pulsar
import pytest

from tests.interop.support import connect, open_url
from tests.support.command_json import Json
from tests.support.raw_client import RawConnection
from tests.vectors.broker_process import BrokerProcess


def letters_of_every_script() -> str:
    """The first letter of each script that Unicode names, one after the other."""
    first: dict[str, str] = {}
    for number in range(sys.maxunicode + 1):
        letter = chr(number)
        if letter.isalpha():
            first.setdefault(unicodedata.name(letter, "").split(" ")[0], letter)
    return "".join(first.values())


SCRIPTS: Final = letters_of_every_script()
NAMES: Final = (
    *(
        "...",
        "~",
        "%",
        "%2F",
        "%2E%2E",
        "%00",
        "a?b#c;d&e=f+g",
        "'\";--",
        "${x}",
        "<b>",
        "\\..\\x",
        " a ",
    ),
    *("\u202eabc", "\ufeff", "e\u0301", "\U0010ffff", "-partition-x", SCRIPTS),
    "x" * 3900,
)
"""Names of topics and of subscriptions."""
REFUSED: Final = ("", " ", ".", "..", "a/b", "/", "a\nINFO forged", "a\tb\x7f", "x" * 65_536)
"""Names that no topic may have."""
TOPICS: Final = "/admin/v2/persistent/public/default"
DOTS: Final = (".", "..", "%2e", "%2e%2e", "%2E%2E", ".%2e", "%2e.")
"""Spellings of the two names that clients take for folders, as they stand on the first line of a request."""
NEARLY_DOTS: Final = (
    "%252e%252e",
    "%252e",
    "..%2f",
    "..%5c",
    "..;",
    "..%20",
    "%c0%ae%c0%ae",
    "%2e%2e%2fdefault",
)
"""Spellings that some program between a client and a file takes for them."""
REFUSALS: Final = {
    "PARTITIONED_METADATA": ("TopicNotFound", "Namespace not found"),
    "LOOKUP": ("TopicNotFound", "Namespace not found"),
    "PRODUCER": ("ServiceNotReady", "Please redo the lookup"),
    "SUBSCRIBE": ("ServiceNotReady", "Please redo the lookup"),
    "GET_SCHEMA": ("TopicNotFound", "Topic not found"),
    "GET_OR_CREATE_SCHEMA": ("TopicNotFound", "Topic not found"),
}
"""The answers of commands about a topic: those about a namespace that does not exist."""


def ask(broker: BrokerProcess, method: str, path: str) -> tuple[int, bytes]:
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(broker.addresses.admin + path, method=method, headers=headers)
    try:
        with open_url(request) as answer:
            return int(answer.status), answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def url_of(name: str) -> str:
    return f"{TOPICS}/{quote(name, safe='')}"


def topic_of(name: str) -> str:
    return f"persistent://public/default/{name}"


def test_hostile_names_are_names_over_the_wire_over_http_and_after_a_kill(tmp_path: Path) -> None:
    assert len(SCRIPTS) > 150
    with BrokerProcess(tmp_path) as broker:
        client = connect(broker.addresses.pulsar)
        for name in NAMES:
            consumer = client.subscribe(topic_of(name), name)
            client.create_producer(topic_of(name)).send(name.encode())
            assert consumer.receive(60_000).data() == name.encode()
        client.close()
        broker.kill()
        broker.start()
        assert set(json.loads(ask(broker, "GET", TOPICS)[1])) == {topic_of(name) for name in NAMES}
        client = connect(broker.addresses.pulsar)
        for name in NAMES:
            # The subscription has its name still, so it has its backlog too.
            message = client.subscribe(topic_of(name), name).receive(60_000)
            assert (message.data(), message.topic_name()) == (name.encode(), topic_of(name))
        client.close()
        for name in NAMES:
            # The first line of a request has a limit.
            if len(quote(name)) < 8000:
                status, body = ask(broker, "GET", f"{url_of(name)}/stats")
                assert (status, [*json.loads(body)["subscriptions"]]) == (200, [name]), name
                assert ask(broker, "DELETE", f"{url_of(name)}?force=true")[0] == 204
    assert "Traceback" not in broker.log_path.read_text(encoding="utf-8")


def test_names_that_no_topic_may_have_are_refused_and_store_nothing(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, memory=True) as broker:
        # Some refusals end the connection, and the client tries again for this time.
        client = connect(broker.addresses.pulsar, operation_timeout_seconds=1)
        for name in REFUSED:
            with pytest.raises(pulsar.PulsarException):
                client.create_producer(topic_of(name))
            if name:
                assert ask(broker, "PUT", url_of(name))[0] in (400, 412)
        # Pulsar's HTTP server refuses this character, whatever the route.
        for path in (TOPICS, "/admin/v2/tenants", "/admin/v2/namespaces/public", "/admin/v2/clusters"):
            assert ask(broker, "PUT", f"{path}/a%00b")[0] == 400
        client.close()
        assert json.loads(ask(broker, "GET", TOPICS)[1]) == []
        assert json.loads(ask(broker, "GET", "/admin/v2/tenants")[1]) == ["public", "pulsar"]
        broker.stop()
        lines = broker.log_path.read_text(encoding="utf-8").splitlines()
    assert not [line for line in lines if "Traceback" in line or line.startswith("INFO forged")]


def ask_raw(broker: BrokerProcess, method: str, path: str, body: object) -> tuple[int, str]:
    """Sends the path as it is, without the normalisation of HTTP clients; returns the status and the answer.

    In a cluster it is sent to the owner as well, with the path that the first broker names.
    """
    return _ask_raw_at(broker.addresses.admin, method, path, body)


def _ask_raw_at(url: str, method: str, path: str, body: object) -> tuple[int, str]:
    text = json.dumps(body)
    lines = (
        f"{method} {path} HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/json",
        f"Content-Length: {len(text)}",
        "Connection: close",
    )
    port = int(url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall("\r\n".join((*lines, "", text)).encode())
        answer = b"".join(iter(lambda: connection.recv(65_536), b"")).decode()
    status, (head, _, content) = int(answer.split(" ", 2)[1]), answer.partition("\r\n\r\n")
    if status == 307:
        location = next(line.partition(": ")[2] for line in head.split("\r\n") if line.startswith("Location"))
        owner, slash, rest = location.removeprefix("http://").partition("/")
        return _ask_raw_at(owner, method, slash + rest, body)
    return status, content


@pytest.mark.parametrize("name", [".", ".."])
def test_names_of_dots_are_given_to_nothing_that_a_path_names(tmp_path: Path, name: str) -> None:
    """Clients and proxies would make another path of it: that of the topic out of that of its subscription."""
    domain: dict[str, list[str]] = {"brokers": []}
    policy = {
        "namespaces": ["public/default"],
        "primary": ["b"],
        "secondary": ["b"],
        "auto_failover_policy": {
            "policy_type": "min_available",
            "parameters": {"min_limit": "1", "usage_threshold": "100"},
        },
    }
    requests: tuple[tuple[str, str, object], ...] = (
        ("PUT", f"persistent/public/default/{name}", {}),
        ("PUT", f"non-persistent/public/default/{name}", {}),
        ("PUT", f"persistent/public/default/{name}/partitions", 2),
        ("PUT", f"persistent/public/default/t/subscription/{name}", {}),
        ("PUT", f"resourcegroups/{name}", {"publishRateInMsgs": 1}),
        ("PUT", f"namespaces/public/default/property/{name}/v", {}),
        ("PUT", "namespaces/public/default/properties", {name: "v"}),
        ("POST", f"namespaces/public/default/permissions/{name}", ["produce"]),
        ("POST", f"persistent/public/default/t/permissions/{name}", ["produce"]),
        ("POST", f"namespaces/public/default/permissions/subscription/{name}", ["role"]),
        ("POST", f"clusters/standalone/failureDomains/{name}", domain),
        ("POST", f"clusters/standalone/namespaceIsolationPolicies/{name}", policy),
    )
    with BrokerProcess(tmp_path, memory=True) as broker:
        assert ask(broker, "PUT", url_of("t"))[0] == 204
        for number, (method, path, body) in enumerate(requests):
            status, told = ask_raw(broker, method, f"/admin/v2/{path}", body)
            assert status == 412, (path, told)
            assert f"clients take {name} in a path for a folder" in told, path
            # The refusal is of this name alone.
            path = path.replace(f"/{name}", f"/good-{number}")
            body = {"good": "v"} if body == {name: "v"} else body
            status, told = ask_raw(broker, method, f"/admin/v2/{path}", body)
            assert status in (200, 204), (path, told)
        with contextlib.closing(connect(broker.addresses.pulsar, operation_timeout_seconds=1)) as client:
            for topic in ("persistent://public/default/t", "non-persistent://public/default/n"):
                with pytest.raises(pulsar.PulsarException):
                    client.subscribe(topic, name)
            with pytest.raises(pulsar.PulsarException):
                client.subscribe(topic_of(name), "s")
        assert (
            ask_raw(broker, "GET", "/admin/v2/persistent/public/default/t/subscriptions", None)[1]
            == '["good-3"]'
        )


async def ask_by_wire(url: str, namespace: str) -> None:
    """Sends each command that names a topic or a namespace, as a client that looks nothing up."""
    connection = await RawConnection.open(url)
    await connection.connect()
    topic = f"persistent://{namespace}/t"
    schema: dict[str, Json] = {"name": "t", "schema_data": "", "type": "String"}
    more: dict[str, dict[str, Json]] = {
        "PARTITIONED_METADATA": {"metadata_auto_creation_enabled": True},
        "PRODUCER": {"producer_id": 1},
        "SUBSCRIBE": {"subscription": "s", "subType": "Shared", "consumer_id": 1},
        "GET_OR_CREATE_SCHEMA": {"schema": schema},
    }
    for name, (error, reason) in REFUSALS.items():
        connection.send(name, topic=topic, request_id=1, **more.get(name, {}))
        told = str((await connection.receive()).command)
        assert f": {error}\n" in told, told
        assert reason in told, told
    connection.send("GET_TOPICS_OF_NAMESPACE", namespace=namespace, request_id=1)
    listed = await connection.receive("GET_TOPICS_OF_NAMESPACE_RESPONSE")
    assert not listed.command.getTopicsOfNamespaceResponse.topics
    connection.send("WATCH_TOPIC_LIST", namespace=namespace, request_id=1, watcher_id=1, topics_pattern=".*")
    watched = await connection.receive("WATCH_TOPIC_LIST_SUCCESS")
    assert not watched.command.watchTopicListSuccess.topic
    await connection.close()


def test_tenants_and_namespaces_of_dots_are_refused_in_every_spelling(tmp_path: Path) -> None:
    tenant = {"allowedClusters": ["standalone"], "adminRoles": []}
    with BrokerProcess(tmp_path, memory=True) as broker:
        for spelling in DOTS:
            name = urllib.parse.unquote(spelling)
            folder = f"name is not valid: clients take {name} in a path for a folder"
            for path, kind, body in (
                ("tenants", "Tenant", tenant),
                ("namespaces/public", "Namespace", {}),
                ("clusters", "Cluster", {}),
            ):
                status, told = ask_raw(broker, "PUT", f"/admin/v2/{path}/{spelling}", body)
                assert (status, json.loads(told)) == (412, {"reason": f"{kind} {folder}"}), spelling
            for namespace in (f"public/{spelling}", f"{spelling}/default", f"{spelling}/{spelling}"):
                for path in (f"{namespace}/t", f"{namespace}/t/partitions"):
                    status, told = ask_raw(broker, "PUT", f"/admin/v2/persistent/{path}", 3)
                    assert (status, json.loads(told)) == (404, {"reason": "Namespace not found"}), path
        for spelling in NEARLY_DOTS:
            for path in ("tenants", "namespaces/public", "persistent/public/default/../%s/t"):
                place = path % spelling if "%s" in path else f"{path}/{spelling}"
                assert ask_raw(broker, "PUT", f"/admin/v2/{place}", tenant)[0] in (404, 412), place
        # With a slash at the end no route has the path, whatever the name.
        for spelling in (*DOTS, *NEARLY_DOTS):
            assert ask_raw(broker, "PUT", f"/admin/v2/tenants/{spelling}/", tenant)[0] == 404
            assert ask_raw(broker, "PUT", f"/admin/v2/namespaces/public/{spelling}/", {})[0] == 404
        for namespace in ("public/..", "public/.", "../default", "./default", "../.."):
            asyncio.run(ask_by_wire(broker.addresses.pulsar, namespace))
        assert json.loads(ask(broker, "GET", "/admin/v2/tenants")[1]) == ["public", "pulsar"]
        assert json.loads(ask(broker, "GET", "/admin/v2/namespaces/public")[1]) == ["public/default"]
        assert json.loads(ask(broker, "GET", "/admin/v2/clusters")[1]) == ["standalone"]
        broker.stop()
        assert "Traceback" not in broker.log_path.read_text(encoding="utf-8")
