"""Replays recorded frames (`wire/*.jsonl`) against a broker: it sends what was sent and compares what comes.

Law: a scenario is a list of steps, done in order, each by one function of the table below. The
first step that differs ends its scenario, because all later frames stand on it. Scenarios use topics of their
own and run side by side, a few at a time.

With `MAGNETAR_CLUSTER` each scenario connects to the broker that has its topic, as a client does after a lookup.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

import aiohttp
import yarl

from protocol.pulsar_api_pb2 import MessageMetadata
from tests.storages.places import CLUSTER
from tests.support.command_json import Json, Tree, as_tree, fill, to_tree
from tests.support.raw_client import (
    Frame,
    PeerClosedError,
    RawConnection,
    build_command,
    payload_frame,
    simple_frame,
)
from tests.vectors.broker_process import Addresses, broker_of_profile
from tests.vectors.compare import Difference, Symbols, differences, substitute
from tests.vectors.explained import EXPLAINED
from tests.vectors.result import Result

SIDE_BY_SIDE: Final = 6
FLAGS_OF_5_0: Final[tuple[Literal["supports_scalable_topics", "supports_tc_metadata_discovery"], ...]] = (
    "supports_scalable_topics",
    "supports_tc_metadata_discovery",
)
_PREPARE_REQUEST: Final = 1_000_000
_CUT: Final = "..."
_COORDINATORS: Final = "persistent://pulsar/system/transaction_coordinator_assign-partition-"
_POLL_PAUSE_S: Final = 0.02


class StepError(AssertionError):
    """A step did not come out as recorded."""


@dataclass(slots=True)
class Player:
    """One scenario being played: its connections by name, and the values of its symbols."""

    addresses: Addresses
    http: aiohttp.ClientSession
    subject: str | None = None
    """The topic whose broker the connections lead to; None for the broker of `addresses`."""
    connections: dict[str, RawConnection] = field(default_factory=dict)
    symbols: Symbols = field(default_factory=dict)

    def connection(self, step: Tree) -> RawConnection:
        return self.connections[str(step["conn"])]


@dataclass(frozen=True, slots=True)
class Verdict:
    """`difference` is None for a scenario that went as recorded."""

    scenario: str
    difference: str | None


def run_file(path: Path) -> Result:
    """Replays a whole file against one broker with the settings of its profile."""
    result = Result()
    for verdict in asyncio.run(play_file(path)):
        result.judge(verdict.scenario, verdict.difference, EXPLAINED.get(verdict.scenario))
    return result


def read_scenarios(path: Path) -> list[Tree]:
    with path.open(encoding="utf-8") as lines:
        return [as_tree(json.loads(line)) for line in lines]


async def play_file(path: Path, only: str | None = None) -> list[Verdict]:
    """The verdicts in the order of the file; `only` plays the scenario of that name alone."""
    scenarios = [one for one in read_scenarios(path) if only in (None, one["scenario"])]
    places = asyncio.Semaphore(SIDE_BY_SIDE)
    with broker_of_profile(str(scenarios[0]["profile"])) as addresses:
        async with aiohttp.ClientSession() as http:

            async def play(scenario: Tree) -> Verdict:
                async with places:
                    return await play_scenario(scenario, Player(addresses, http, subject_of(scenario)))

            return await asyncio.gather(*(play(scenario) for scenario in scenarios))


def subject_of(scenario: Tree) -> str | None:
    """Returns the topic that a scenario begins with, that of its transaction coordinator, or None where one broker runs."""
    steps = scenario["steps"]
    assert isinstance(steps, list)
    if CLUSTER not in os.environ:
        return None
    for step in steps:
        kind, inner = next(iter(as_tree(step).items()))
        if kind not in ("prepare", "send"):
            continue
        told = as_tree(inner)
        fields = told if kind == "prepare" else as_tree(told.get("fields", {}))
        if "topic" in fields:
            return str(fields["topic"])
        if "tc_id" in fields:
            return f"{_COORDINATORS}{fields['tc_id']}"
    return None


async def play_scenario(scenario: Tree, player: Player) -> Verdict:
    name, steps = str(scenario["scenario"]), scenario["steps"]
    assert isinstance(steps, list)
    try:
        for number, step in enumerate(steps):
            # `auto_pong` is the one step with a second key beside its own.
            kind = next(iter(as_tree(step)))
            try:
                await _STEPS[kind](player, as_tree(step))
            except (
                AssertionError,
                TimeoutError,
                OSError,
                KeyError,
                ValueError,
                aiohttp.ClientError,
            ) as problem:
                return Verdict(name, f"step {number} ({_described(kind, as_tree(step))}): {_told(problem)}")
        return Verdict(name, None)
    finally:
        for connection in player.connections.values():
            await connection.close()


async def _open(player: Player, step: Tree) -> None:
    player.connections[str(step["open"])] = await RawConnection.open(await _address(player))


async def _address(player: Player) -> str:
    """The owner of the scenario's topic; the first broker where the name or its namespace is refused."""
    domain, separator, rest = (player.subject or "").partition("://")
    if not separator:
        return player.addresses.pulsar
    status, text = await _request(player, "GET", f"/lookup/v2/topic/{domain}/{rest}", None)
    return str(as_tree(json.loads(text))["brokerUrl"]) if status == 200 else player.addresses.pulsar


async def _handshake(player: Player, step: Tree) -> None:
    handshake = as_tree(step["handshake"])
    player.connection(handshake).send_bytes(_sent_bytes(handshake, player.symbols))
    await player.connection(handshake).receive("CONNECTED")


async def _prepare(player: Player, step: Tree) -> None:
    prepare = as_tree(step["prepare"])
    connection = player.connection(prepare)
    connection.send("LOOKUP", topic=prepare["topic"], request_id=_PREPARE_REQUEST)
    await connection.receive("LOOKUP_RESPONSE")


async def _send(player: Player, step: Tree) -> None:
    sent = as_tree(step["send"])
    player.connection(sent).send_bytes(_sent_bytes(sent, player.symbols))


async def _expect(player: Player, step: Tree) -> None:
    expected = as_tree(step["expect"])
    got = await player.connection(expected).receive()
    found = _compare(expected, got, player.symbols)
    if found:
        raise StepError("; ".join(str(one) for one in found))


async def _expect_any_order(player: Player, step: Tree) -> None:
    listed = step["expect_any_order"]
    assert isinstance(listed, list)
    missing = [as_tree(one) for one in listed]
    for _ in listed:
        got = await player.connection(missing[0]).receive()
        for candidate in missing:
            trial = dict(player.symbols)
            if not _compare(candidate, got, trial):
                player.symbols.update(trial)
                missing.remove(candidate)
                break
        else:
            same_type = [one for one in missing if one["type"] == got.type_name] or missing
            found = _compare(same_type[0], got, dict(player.symbols))
            raise StepError(f"{got.type_name} fits none: " + "; ".join(str(one) for one in found))


async def _quiet(player: Player, step: Tree) -> None:
    quiet = as_tree(step["quiet"])
    frame = await player.connection(quiet).quiet(_seconds(quiet["ms"]))
    if frame is not None:
        raise StepError(f"want nothing, got {frame.type_name} {to_tree(frame.command)}")


async def _closed(player: Player, step: Tree) -> None:
    frames = await player.connection(as_tree(step["closed"])).until_closed()
    if frames:
        raise StepError(f"want the close only, got before it: {[frame.type_name for frame in frames]}")


async def _close(player: Player, step: Tree) -> None:
    await player.connections.pop(str(step["close"])).close()


async def _admin(player: Player, step: Tree) -> None:
    asked = as_tree(step["admin"])
    status, text = await _request(player, str(asked["method"]), str(asked["path"]), asked["body"])
    if status != asked["status"]:
        raise StepError(f"status: want {asked['status']}, got {status} {text[:200]!r}")


async def _poll(player: Player, step: Tree) -> None:
    poll = as_tree(step["poll"])
    async with asyncio.timeout(_seconds(poll["ms"])):
        # A broker behind HTTP has no event to wait for.
        while str(poll["contains"]) not in (await _request(player, "GET", str(poll["path"]), None))[1]:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_PAUSE_S)


async def _auto_pong(player: Player, step: Tree) -> None:
    player.connection(step).auto_pong = bool(step["auto_pong"])


async def _sleep(player: Player, step: Tree) -> None:
    # A recorded pause is part of the transcript: what follows it was recorded after the broker's own timers.
    await asyncio.sleep(_seconds(step["sleep"]))


_STEPS: Final[Mapping[str, Callable[[Player, Tree], Awaitable[None]]]] = {
    "open": _open,
    "handshake": _handshake,
    "prepare": _prepare,
    "send": _send,
    "expect": _expect,
    "expect_any_order": _expect_any_order,
    "quiet": _quiet,
    "closed": _closed,
    "close": _close,
    "admin": _admin,
    "poll": _poll,
    "auto_pong": _auto_pong,
    "sleep": _sleep,
}


def _sent_bytes(sent: Tree, symbols: Symbols) -> bytes:
    """The recorded bytes where they are complete and stand for themselves, else the same frame built anew."""
    recorded, bind = str(sent.get("hex", "")), as_tree(sent.get("bind", {}))
    if recorded and not recorded.endswith(_CUT) and not bind:
        return bytes.fromhex(recorded)
    tree = substitute(_whole(sent), {path: str(symbol) for path, symbol in bind.items()}, symbols)
    message = tree.pop("message", None) if "message" in sent else None
    command = build_command(str(sent["type"]), tree)
    if message is None:
        return simple_frame(command)
    told = as_tree(message)
    metadata = MessageMetadata()
    fill(metadata, as_tree(told["metadata"]))
    return payload_frame(
        command, metadata, bytes.fromhex(str(told["payload"])), checksum=str(told.get("crc", "ok"))
    )


def _compare(expected: Tree, got: Frame, symbols: Symbols) -> list[Difference]:
    if got.type_name != expected["type"]:
        received = f"{got.type_name} {to_tree(got.command)}"
        return [Difference("type", str(expected["type"]), received)]
    vary, bind = expected.get("vary", []), as_tree(expected.get("bind", {}))
    assert isinstance(vary, list)
    want = _whole(expected)
    if got.type_name == "LOOKUP_RESPONSE" and CLUSTER in os.environ:
        # Recorded with a broker alone, whose clients keep the address that they have.
        assert not got.command.lookupTopicResponse.proxy_through_service_url
        want.pop("proxy_through_service_url", None)
        got.command.lookupTopicResponse.ClearField("proxy_through_service_url")
    if got.type_name == "CONNECTED":
        # All that clients of 4.2 see of 5.0: the recordings are older than these flags.
        for flag in FLAGS_OF_5_0:
            got.command.connected.feature_flags.ClearField(flag)
    found = differences(
        want,
        _received_tree(got),
        vary=[str(path) for path in vary],
        bind={path: str(symbol) for path, symbol in bind.items()},
        symbols=symbols,
    )
    trailing = str(expected.get("trailing", ""))
    if got.type_name != "MESSAGE" and got.trailing.hex() != trailing:
        found.append(Difference("trailing", repr(trailing), repr(got.trailing.hex())))
    return found


def _whole(step: Tree) -> Tree:
    """Fields and message in one tree, so that the recording's paths (`message.metadata.x`) lead into it."""
    tree = dict(as_tree(step["fields"]))
    if "message" in step:
        tree["message"] = step["message"]
    return tree


def _received_tree(frame: Frame) -> Tree:
    (payload,) = [to_tree(value) for _, value in frame.command.ListFields() if not isinstance(value, int)]
    if frame.type_name == "MESSAGE":
        entry = frame.entry()
        header = entry.broker_entry_metadata
        payload["message"] = {
            "broker_entry_metadata": None if header is None else to_tree(header),
            "crc": entry.checksum,
            "metadata": to_tree(entry.metadata),
            "payload": entry.payload.hex(),
        }
    return payload


async def _request(player: Player, method: str, path: str, body: Json) -> tuple[int, str]:
    """A text body goes as it is: it is JSON already. Anything else is turned into JSON."""
    data = body if isinstance(body, str) or body is None else json.dumps(body)
    headers = {} if data is None else {"Content-Type": "application/json"}
    url = yarl.URL(player.addresses.admin + path, encoded=True)
    async with player.http.request(
        method, url, data=data, headers=headers, skip_auto_headers=["Content-Type"]
    ) as answer:
        return answer.status, await answer.text()


def _seconds(milliseconds: Json) -> float:
    assert isinstance(milliseconds, int)
    return milliseconds / 1000


def _described(kind: str, step: Tree) -> str:
    inner = step[kind]
    if isinstance(inner, dict):
        return " ".join(
            [kind, *(str(inner[key]) for key in ("conn", "type", "method", "path") if key in inner)]
        )
    return kind


def _told(problem: Exception) -> str:
    if isinstance(problem, PeerClosedError):
        return "want it open, got the connection closed"
    if isinstance(problem, TimeoutError):
        return "nothing came in time"
    with contextlib.suppress(IndexError):
        if isinstance(problem, KeyError):
            return f"unknown {problem.args[0]!r}"
    return str(problem) or type(problem).__name__
