"""Names that clients choose and that other programs stumble over: dots, escapes, every script, control characters."""

from __future__ import annotations

import json
import sys
import unicodedata
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final
from urllib.parse import quote

import pulsar
import pytest

from tests.interop.support import connect
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
        "..",
        ".",
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
REFUSED: Final = ("", " ", "a/b", "/", "a\nINFO forged", "a\tb\x7f", "x" * 65_536)
"""Names that no topic may have."""
TOPICS: Final = "/admin/v2/persistent/public/default"


def ask(broker: BrokerProcess, method: str, path: str) -> tuple[int, bytes]:
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(broker.addresses.admin + path, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
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
            # Two names are parts of every path, and the first line of a request has a limit.
            if name not in (".", "..") and len(quote(name)) < 8000:
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
