"""Replays recorded admin requests (`rest/*.jsonl`) against a broker and compares status, headers and body.

Law of the place: records run one at a time and in the order of the file, because some name things that others
list; each starts with its own setup, whose answers are not compared.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import aiohttp
import yarl

from protocol.pulsar_api_pb2 import MessageMetadata
from tests.storages.places import CLUSTER
from tests.support.command_json import Json, Tree, as_tree, fill
from tests.support.raw_client import RawConnection, build_command, payload_frame
from tests.vectors.broker_process import Addresses, broker_of_profile
from tests.vectors.compare import Difference, differences
from tests.vectors.explained import EXPLAINED_REQUESTS
from tests.vectors.result import Result
from tests.vectors.wire import Verdict

_COMPARED_HEADERS: Final = ("content-type", "location", "allow")
_COMPARED_PREFIX: Final = "x-pulsar-"
_FIRST_PUBLISH_MS: Final = 1_700_000_000_000
_REQUEST_TIMEOUT_S: Final = 60.0
_LATE_S: Final = 60.0
"""How much later than a recorded delay the recorded answer may come. A compaction starts a process, for example, which
takes seconds on a busy machine."""
_POLL_PAUSE_S: Final = 0.05


@dataclass(slots=True)
class Player:
    """One record being played. `symbols` are texts that stand for `{name}` in later paths and bodies."""

    addresses: Addresses
    http: aiohttp.ClientSession
    symbols: dict[str, str] = field(default_factory=dict)
    held: list[RawConnection] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: Json
    """Parsed where it is JSON, otherwise the text."""


def run_file(path: Path) -> Result:
    """Replays a whole file against one broker with the settings of its profile."""
    result = Result()
    for verdict in asyncio.run(play_file(path)):
        result.judge(verdict.scenario, verdict.difference, EXPLAINED_REQUESTS.get(verdict.scenario))
    return result


async def play_file(path: Path) -> list[Verdict]:
    """The verdicts in the order of the file."""
    with path.open(encoding="utf-8") as lines:
        records = [as_tree(json.loads(line)) for line in lines]
    timeout = aiohttp.ClientTimeout(total=_REQUEST_TIMEOUT_S)
    with broker_of_profile(str(records[0]["profile"])) as addresses:
        async with aiohttp.ClientSession(timeout=timeout) as http:
            return [await _play_record(record, Player(addresses, http)) for record in records]


async def _play_record(record: Tree, player: Player) -> Verdict:
    setup = record["setup"]
    assert isinstance(setup, list)
    try:
        for step in setup:
            await _set_up(as_tree(step), player)
        found = await _ask_and_compare(record, player)
        delayed = as_tree(record["request"]).get("delay_ms", 0) and record["name"] not in EXPLAINED_REQUESTS
        deadline = time.monotonic() + (_LATE_S if delayed else 0)
        while found and time.monotonic() < deadline:
            await asyncio.sleep(_POLL_PAUSE_S)
            found = await _ask_and_compare(record, player)
    except (AssertionError, TimeoutError, OSError, KeyError, aiohttp.ClientError) as problem:
        return Verdict(str(record["name"]), f"{type(problem).__name__} {problem}")
    finally:
        for connection in player.held:
            await connection.close()
    return Verdict(str(record["name"]), "; ".join(str(one) for one in found) or None)


async def _ask_and_compare(record: Tree, player: Player) -> list[Difference]:
    answer = await _request(as_tree(record["request"]), player)
    vary = record["vary"]
    assert isinstance(vary, list)
    return _compare(as_tree(record["response"]), answer, [str(path) for path in vary])


async def _set_up(step: Tree, player: Player) -> None:
    if "publish" in step:
        publish = as_tree(step["publish"])
        connection = await RawConnection.open(await _owner(str(publish["topic"]), player))
        player.held.append(connection)
        await _publish(publish, connection)
        if not publish.get("hold", False):
            await connection.close()
        return
    answer = await _request(step, player)
    for symbol, path in as_tree(step.get("bind", {})).items():
        player.symbols[symbol] = str(as_tree(answer.body)[str(path)])


async def _owner(topic: str, player: Player) -> str:
    """The address of the broker that has the topic: of several the asked one need not have it."""
    if CLUSTER not in os.environ:
        return player.addresses.pulsar
    domain, _, name = topic.rpartition("://")
    path = f"/lookup/v2/topic/{domain or 'persistent'}/{name}"
    async with player.http.get(player.addresses.admin + path) as answer:
        return str((await answer.json())["brokerUrl"])


async def _publish(publish: Tree, connection: RawConnection) -> None:
    await connection.connect()
    topic = publish["topic"]
    connection.send("LOOKUP", topic=topic, request_id=0)
    await connection.receive("LOOKUP_RESPONSE")
    if "sub" in publish:
        connection.send(
            "SUBSCRIBE",
            topic=topic,
            subscription=publish["sub"],
            subType=publish.get("subType", "Exclusive"),
            consumer_id=1,
            request_id=1,
            consumer_name="c",
            initialPosition="Earliest",
        )
        await connection.receive("SUCCESS", "ACTIVE_CONSUMER_CHANGE")
    messages = publish.get("messages") or []
    assert isinstance(messages, list)
    if messages:
        connection.send("PRODUCER", topic=topic, producer_id=1, request_id=2, producer_name="p")
        await connection.receive("PRODUCER_SUCCESS", "ACTIVE_CONSUMER_CHANGE")
    for index, message in enumerate(messages):
        connection.send_bytes(_message_frame(index, as_tree(message)))
        await connection.receive("SEND_RECEIPT")


def _message_frame(index: int, message: Tree) -> bytes:
    metadata = MessageMetadata(
        producer_name="p", sequence_id=index, publish_time=_FIRST_PUBLISH_MS + 1000 * index
    )
    fill(metadata, as_tree(message.get("metadata") or {}))
    payload = bytes.fromhex(str(message["hex"])) if "hex" in message else str(message["text"]).encode()
    command = build_command("SEND", {"producer_id": 1, "sequence_id": index})
    return payload_frame(command, metadata, payload)


async def _request(request: Tree, player: Player) -> Answer:
    delay_ms = request.get("delay_ms", 0)
    assert isinstance(delay_ms, int)
    if delay_ms:
        # A recorded delay is part of the script: the answer was recorded after the broker's own timers.
        await asyncio.sleep(delay_ms / 1000)
    body = request["body"]
    data: str | None = None
    if body is not None:
        data = _with_symbols(str(body) if request.get("raw") else json.dumps(body), player.symbols)
    headers = {name: str(value) for name, value in as_tree(request.get("headers", {})).items()}
    if data is not None:
        headers.setdefault("Content-Type", "application/json")
    path = _with_symbols(str(request["path"]), player.symbols)
    async with player.http.request(
        str(request["method"]),
        yarl.URL(player.addresses.admin + path, encoded=True),
        data=data,
        headers=headers,
        skip_auto_headers=["Content-Type"],
        # The recorded broker was alone and redirected nothing.
        allow_redirects=CLUSTER in os.environ,
    ) as answer:
        return Answer(answer.status, answer.headers, _parsed(await answer.read()))


def _with_symbols(text: str, symbols: Mapping[str, str]) -> str:
    for symbol, value in symbols.items():
        text = text.replace(f"{{{symbol}}}", value)
    return text


def _parsed(body: bytes) -> Json:
    text = body.decode(errors="replace")
    try:
        parsed: Json = json.loads(text)
    except ValueError:
        return text
    return parsed


def _compare(want: Tree, got: Answer, vary: list[str]) -> list[Difference]:
    found = []
    if want["status"] != got.status:
        found.append(Difference("status", str(want["status"]), f"{got.status} {got.body!r:.200}"))
    wanted_headers = {name: str(value) for name, value in as_tree(want["headers"]).items()}
    for name in sorted({*wanted_headers, *_comparable(got.headers)}):
        wanted, received = wanted_headers.get(name), got.headers.get(name)
        same = (wanted is None) == (received is None) and (
            f"headers.{name}" in vary or _header_value(name, wanted) == _header_value(name, received)
        )
        if not same:
            found.append(Difference(f"headers.{name}", repr(wanted), repr(received)))
    if "body" not in vary and want["status"] == got.status:
        wanted_body: Tree = {"body": _as_sets(want["body"])}
        received_body: Tree = {"body": _as_sets(got.body)}
        if isinstance(want["body"], dict) and isinstance(got.body, dict):
            wanted_body, received_body = as_tree(wanted_body["body"]), as_tree(received_body["body"])
        else:
            vary = [f"body{path}" if path.startswith("[") else path for path in vary]
        found += differences(wanted_body, received_body, vary=vary, symbols={})
    return found


def _comparable(headers: Mapping[str, str]) -> set[str]:
    names = {name.lower() for name in headers}
    return {name for name in names if name in _COMPARED_HEADERS or name.startswith(_COMPARED_PREFIX)}


def _header_value(name: str, value: str | None) -> str | frozenset[str] | None:
    if value is None:
        return None
    if name == "allow":
        return frozenset(part.strip() for part in value.split(","))
    if name == "content-type":
        return value.split(";")[0].strip().lower()
    return value


def _as_sets(value: Json) -> Json:
    """Lists of texts in one order: the recording's order carries no meaning."""
    if isinstance(value, dict):
        return {name: _as_sets(item) for name, item in value.items()}
    if isinstance(value, list):
        if all(isinstance(item, str) for item in value):
            return sorted(value, key=str)
        return [_as_sets(item) for item in value]
    return value
