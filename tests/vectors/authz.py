"""Replays recorded answers to roles (`authz/rest.jsonl`, `authz/wire.jsonl`) and compares statuses and error names.

Law of the place: lines run in the order of the file, because some change what others ask about. All lines of one id
make one verdict, so a difference is explained once and not once per role. A route that this broker does not serve yet
is counted apart: it says nothing about rights.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.command_json import Json, Tree, as_tree
from tests.support.raw_client import Frame, PeerClosedError, RawConnection
from tests.vectors.authz_broker import ADMIN, AuthzBroker, authz_broker
from tests.vectors.explained_authz import EXPLAINED_COMMANDS, EXPLAINED_ROLES
from tests.vectors.result import Result

NOT_SERVED: Final = frozenset((404, 405, 501))
"""Statuses of a route that is missing, where the body is a page or the status is 501."""
_IGNORED: Final = frozenset(("MESSAGE", "ACTIVE_CONSUMER_CHANGE"))
_CODES: Final = ("error_code", "error")
_UNSIGNED_MAX: Final = 2**64 - 1


@dataclass(slots=True)
class Verdict:
    """The verdict about all recorded lines of one id."""

    name: str
    differences: list[str]
    not_served: bool = False
    """The broker lacks the route."""

    @property
    def difference(self) -> str | None:
        return "; ".join(self.differences) or None


def run_file(path: Path) -> Result:
    """Replays a whole file against one broker."""
    result = Result()
    not_served = 0
    explained = EXPLAINED_COMMANDS if path.name == "wire.jsonl" else EXPLAINED_ROLES
    for verdict in asyncio.run(play_file(path)):
        if verdict.not_served:
            not_served += 1
            result.messages.append(f"not served yet: {verdict.name}")
        else:
            result.judge(verdict.name, verdict.difference, explained.get(verdict.name))
    if not_served:
        result.messages.append(f"{path.name}: {not_served} routes are not served yet")
    return result


async def play_file(path: Path) -> list[Verdict]:
    """The verdicts in the order of the file."""
    with path.open(encoding="utf-8") as lines:
        records = [as_tree(json.loads(line)) for line in lines]
    verdicts: dict[str, Verdict] = {}
    async with authz_broker() as broker:
        for record in records:
            name = str(record["id"])
            verdict = verdicts.setdefault(name, Verdict(name, []))
            if "ops" in record:
                await _play_commands(broker, record, verdict)
            else:
                await _play_request(broker, record, verdict)
    return list(verdicts.values())


# Requests


async def _play_request(broker: AuthzBroker, record: Tree, verdict: Verdict) -> None:
    for method, path, body in _calls(record.get("prep")):
        await broker.request(method, path, body, ADMIN)
    role = str(record["role"])
    answer = await broker.request(str(record["method"]), str(record["path"]), record["body"], role)
    want = record["status"], record["json"]
    if (answer.status, answer.has_reason) != want:
        missing = answer.status in NOT_SERVED and (answer.status == 501 or not answer.has_reason)
        verdict.not_served |= missing and answer.status != want[0]
        verdict.differences.append(
            f"{role}: {want[0]}{'' if want[1] else ' without reason'} expected, {answer.status}"
            f"{'' if answer.has_reason else ' without reason'} came"
        )
    if answer.status < 300 or answer.status >= 500:
        for method, path, body in _calls(record.get("cleanup")):
            await broker.request(method, path, body, ADMIN)


def _calls(value: Json) -> list[tuple[str, str, Json]]:
    calls = value if isinstance(value, list) else []
    return [(str(call[0]), str(call[1]), call[2]) for call in calls if isinstance(call, list)]


# Commands


async def _play_commands(broker: AuthzBroker, record: Tree, verdict: Verdict) -> None:
    connection = await RawConnection.open(broker.pulsar, source=broker.next_source())
    try:
        got = await _converse(broker, connection, record)
    finally:
        await connection.close()
    want = [as_tree(one) for one in _list(record["answers"])]
    wanted = [(one["op"], one["answer"], one["error"]) for one in want]
    if got != [*wanted, record["closed"]]:
        verdict.differences.append(
            f"{record['role']}: {wanted} closed={record['closed']} expected, {got} came"
        )


async def _converse(
    broker: AuthzBroker, connection: RawConnection, record: Tree
) -> list[tuple[Json, Json, Json] | Json]:
    """The answers, and whether the broker closed the connection after the last one."""
    ops: list[tuple[str, Tree]] = []
    if record["connect"] is not None:
        fields = dict(as_tree(record["connect"]))
        if "auth_data" in fields:
            given = str(fields["auth_data"])
            data = broker.token(given.removeprefix("$token:")) if given.startswith("$token:") else given
            fields["auth_data"] = data.encode().hex()
        ops.append(("CONNECT", {"auth_method_name": "", **fields}))
    sent = [as_tree(op) for op in _list(record["ops"])]
    ops += [(str(op["op"]), _as_sent(as_tree(op["fields"]))) for op in sent]
    got: list[tuple[Json, Json, Json] | Json] = []
    unasked = sum(as_tree(one)["op"] == "unasked" for one in _list(record["answers"]))
    for name, fields in ops:
        if name == "CONNECT" and not fields["auth_method_name"]:
            del fields["auth_method_name"]
        connection.send(name, **fields)
        try:
            frame = await _next(connection)
        except PeerClosedError:
            return [*got, (name, "CLOSED", None), True]
        got.append((name, frame.type_name, _error_of(frame)))
        if got[-1] == (name, frame.type_name, None):
            continue
        break
    for _ in range(unasked):
        frame = await _next(connection)
        got.append(("unasked", frame.type_name, _error_of(frame)))
    return [*got, await _is_closed(connection)]


async def _is_closed(connection: RawConnection) -> bool:
    connection.send("PING")
    try:
        await _next(connection, until="PONG")
    except PeerClosedError:
        return True
    return False


async def _next(connection: RawConnection, *, until: str = "") -> Frame:
    while True:
        frame = await connection.receive()
        if frame.type_name not in _IGNORED and (not until or frame.type_name == until):
            return frame


def _error_of(frame: Frame) -> str | None:
    """The name of the error in an answer, also of one inside a response."""
    from protocol.pulsar_api_pb2 import ServerError

    for descriptor, value in frame.command.ListFields():
        for name in _CODES:
            if descriptor.message_type is not None and name in descriptor.message_type.fields_by_name:
                return ServerError.Name(getattr(value, name)) if value.HasField(name) else None
    return None


def _as_sent(fields: Tree) -> Tree:
    """The fields with -1 as the largest unsigned number, where it stands for that."""
    sent: Tree = {}
    for name, value in fields.items():
        if isinstance(value, dict):
            sent[name] = _as_sent(value)
        else:
            sent[name] = _UNSIGNED_MAX if value == -1 and name in ("ledgerId", "entryId") else value
    return sent


def _list(value: Json) -> Sequence[Json]:
    assert isinstance(value, list)
    return value
