"""Requests that `magnetar admin` makes from the values of a command, and messages that it prints from answers."""

from __future__ import annotations

import email
from email.message import Message
from pathlib import Path
from typing import cast

import pytest

from foundation.value import Json
from magnetar.admin.messages import peeked, texts_of
from magnetar.admin.requests import Body, body_of, path_of
from magnetar.admin.values import minutes, position, seconds, size, topic_path
from magnetar.clients.admin_client import Response
from magnetar.clients.client import CommandError
from protocol.pulsar_api_pb2 import SingleMessageMetadata


def test_units_are_those_of_pulsar_admin() -> None:
    assert [seconds(text) for text in ("10", "10s", "5m", "3h", "2d", "1w", "-1")] == [
        10, 10, 300, 10_800, 172_800, 604_800, -1
    ]  # fmt: skip
    assert [size(text) for text in ("10", "2k", "3M", "1G", "1T")] == [10, 2048, 3 << 20, 1 << 30, 1 << 40]
    assert [minutes(text) for text in ("90", "1h", "-1")] == [1, 60, -1]
    assert position("3:-1") == {"ledgerId": 3, "entryId": -1, "partitionIndex": -1}
    with pytest.raises(CommandError):
        size("1X")


def test_names_are_encoded_and_missing_parts_are_left_out() -> None:
    assert topic_path("a?b") == "persistent/public/default/a%3Fb"
    assert topic_path("non-persistent://t/n/a/b") == "non-persistent/t/n/a%2Fb"
    values = {"namespace": None, "bundle": None, "force": False, "mode": "A&B"}
    assert path_of("/q/{namespace}/{bundle}?force={force}&mode={mode}", values) == "/q?mode=A%26B"
    assert body_of('{"a":"$x","b":{"c":"$y"}}', {"x": 1, "y": None}) == Body(b'{"a": 1}')
    assert body_of('"$x"', {"x": None}) is None


def test_alternatives_are_chosen_by_the_values() -> None:
    path = "s? /topic/{s}/rate || /topic/rate"
    assert [path_of(path, {"s": one}) for one in ("sub", None, False)] == [
        "/topic/sub/rate",
        "/topic/rate",
        "/topic/rate",
    ]
    assert path_of("/{a|b}/x", {"a": None, "b": "c"}) == "/c/x"
    body = 'p? as text/plain {"n":"$n","p":"$p"} || "$n"'
    assert body_of(body, {"n": 2, "p": None}) == Body(b"2")
    assert body_of(body, {"n": 2, "p": 3}) == Body(b'{"n": 2, "p": 3}', "text/plain")
    assert body_of('{"...":"$file","a":"$a|b"}', {"file": {"a": 1, "c": 2}, "a": None, "b": None}) == Body(
        b'{"a": 1, "c": 2}'
    )


def test_forms_have_files_and_urls(tmp_path: Path) -> None:
    file = tmp_path / "f.jar"
    file.write_bytes(b"\x00jar")
    form = 'multipart {"config":{"name":"$name"},"data":"@jar|py"}'
    body = body_of(form, {"name": "n", "jar": None, "py": str(file)})
    assert body is not None
    message = email.message_from_bytes(f"Content-Type: {body.type}\r\n\r\n".encode() + body.content)
    first, second = cast("list[Message]", message.get_payload())
    assert (first.get_payload(decode=True), first.get_content_type()) == (
        b'{"name": "n"}',
        "application/json",
    )
    assert second.get_payload(decode=True) == b"\x00jar"
    assert second.get_filename() == "f.jar"
    body = body_of(form, {"name": "n", "jar": "builtin://x", "py": None})
    assert body is not None
    assert b'name="url"\r\nContent-Type: text/plain\r\n\r\nbuiltin://x\r\n' in body.content


def test_names_of_functions_and_packages() -> None:
    values = {"fqfn": None, "tenant": None, "namespace": None, "name": "f g"}
    assert path_of("/f/{function}/{instance-id}/stop", values) == "/f/public/default/f%20g/stop"
    assert path_of("/f/{functions}", values) == "/f/public/default"
    assert path_of("/f/{function}", {**values, "fqfn": "t/n/f"}) == "/f/t/n/f"
    package = {"packageName": "sink://t/n/p@v1"}
    assert path_of("/{package}/metadata", package) == "/sink/t/n/p/v1/metadata"
    assert path_of("/{package-name}", package) == "/sink/t/n/p"
    assert path_of("/{package}", {"packageName": "sink://t/n/p"}) == "/sink/t/n/p/latest"


def entry(content: bytes, **headers: str) -> Response:
    return Response(content, {f"x-pulsar-{name.replace('_', '-')}": one for name, one in headers.items()})


def test_messages_are_printed_as_by_pulsar_admin() -> None:
    plain = entry(b"hello", message_id="3:4", publish_time="2026-11-23T01:02:03.004Z", property='{"p":"v"}')
    assert texts_of(plain) == [
        """\
Message ID: 3:4
Publish time: 1795395723004
Event time: 0
Properties:
{
  "p" : "v"
}
         +-------------------------------------------------+
         |  0  1  2  3  4  5  6  7  8  9  a  b  c  d  e  f |
+--------+-------------------------------------------------+----------------+
|00000000| 68 65 6c 6c 6f                                  |hello           |
+--------+-------------------------------------------------+----------------+
"""
    ]
    packed = b""
    for text in (b"one", b"two"):
        single = SingleMessageMetadata(payload_size=len(text)).SerializeToString()
        packed += len(single).to_bytes(4, "big") + single + text
    batch = entry(packed, message_id="3:5", num_batch_message="2")
    assert [text.splitlines()[0] for text in texts_of(batch)] == [
        "Batch Message ID: 3:5:0",
        "Batch Message ID: 3:5:1",
    ]
    assert "|two  " in texts_of(batch)[1]
    with pytest.raises(CommandError, match="no batch of 3 messages"):
        texts_of(entry(packed, num_batch_message="3"))


def test_messages_of_transactions_and_markers_are_left_out() -> None:
    committed, open_one = entry(b"", txn_uncommitted="false"), entry(b"", txn_uncommitted="true")
    values: dict[str, Json] = {
        "show-server-marker": False,
        "transaction-isolation-level": "READ_COMMITTED",
    }
    assert [peeked(one, values) for one in (committed, open_one)] == [True, False]
    assert peeked(open_one, {**values, "transaction-isolation-level": "READ_UNCOMMITTED"})
    marker = entry(b"", marker_type="20")
    assert not peeked(marker, values)
    assert peeked(marker, {**values, "show-server-marker": True})
