"""A broker with the settings, tokens and objects of the authorization recordings."""

from __future__ import annotations

import contextlib
import itertools
import json
import secrets
import tempfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp
import yarl

from protocol.pulsar_api_pb2 import MessageMetadata
from tests.support.command_json import Json
from tests.support.raw_client import RawConnection, build_command, payload_frame
from tests.support.tokens import token, unsigned_token
from tests.vectors.broker_process import BrokerProcess, profile_settings

ADMIN: Final = "admin"
_TOKEN_PROVIDER: Final = "org.apache.pulsar.broker.authentication.AuthenticationProviderToken"
_REQUEST_TIMEOUT_S: Final = 60.0
_CLAIMS: Final[Mapping[str, Mapping[str, Json]]] = {
    "expired": {"sub": ADMIN, "exp": 1_000_000_000},
    "future": {"sub": ADMIN, "exp": 4_000_000_000},
    "nosub": {"iss": "x"},
}
"""Claims of the tokens whose role does not name them."""
_PROVE_NOTHING: Final = frozenset(
    [
        "none",
        "bad",
        "expired",
        "algnone",
        "garbage",
        "lowercase-scheme",
        "basic-scheme",
        "no-scheme",
        "empty-header",
    ]
)
"""Roles whose requests are refused before rights matter."""
_LATEST: Final = '{"ledgerId":-1,"entryId":-1,"partitionIndex":-1}'
_STRING_SCHEMA: Final = '{"type":"STRING","schema":"","properties":{}}'
_OBJECTS: Final = f"""
    PUT /admin/v2/tenants/t1 {{"adminRoles":["tenantadmin"],"allowedClusters":["standalone"]}}
    PUT /admin/v2/namespaces/t1/ns1 {{"bundles":{{"numBundles":4}}}}
    POST /admin/v2/namespaces/public/default/permissions/producer ["produce"]
    POST /admin/v2/namespaces/public/default/permissions/consumer ["consume"]
    POST /admin/v2/namespaces/public/default/permissions/both ["produce","consume"]
    POST /admin/v2/namespaces/public/default/permissions/subscription/subp ["both"]
    PUT /admin/v2/persistent/public/default/tg1
    POST /admin/v2/persistent/public/default/tg1/permissions/topicrole ["produce","consume"]
    PUT /admin/v2/persistent/public/default/tg1/subscription/sub1 {_LATEST}
    PUT /admin/v2/resourcegroups/rg1 {{"publishRateInMsgs":1000}}
    PUT /admin/v2/clusters/c2 {{"serviceUrl":"http://c2.example:8080","brokerServiceUrl":"pulsar://c2.example:6650"}}
"""
_TOPICS: Final = ("top1", "cur1", "pol1", "cmp1", "trunc1", "unl1", "rest1", "goc1")
_SPACES: Final = ("public/default", "t1/ns1")
_MESSAGES: Final = 5


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer over HTTP."""

    status: int
    has_reason: bool
    """The body is a JSON object with a `reason`, Pulsar's form of an error."""


class AuthzBroker:
    """A prepared broker; requests go to it in the name of a role."""

    def __init__(self, process: BrokerProcess, key: bytes, http: aiohttp.ClientSession) -> None:
        self.pulsar = process.addresses.pulsar
        self._admin = process.addresses.admin
        self._key = key
        self._http = http
        self._sources = itertools.count(2)

    def next_source(self) -> str:
        """An address of the loopback for a client that may fail to prove its role.

        The broker delays its answers to an address with many failures, and the recordings have a thousand of them.
        """
        number = next(self._sources)
        return f"127.1.{number >> 8}.{number & 255}"

    def token(self, role: str) -> str:
        """The token that a role of the recordings shows."""
        claims: Mapping[str, Json] = _CLAIMS.get(role, {"sub": role})
        if role == "bad":
            return token({"sub": ADMIN}, key=secrets.token_bytes(32))
        if role == "algnone":
            return unsigned_token({"sub": ADMIN})
        return "not-a-token" if role == "garbage" else token(claims, key=self._key)

    async def request(self, method: str, path: str, body: Json, role: str) -> Answer:
        """Sends one request with the token of a role."""
        data = None if body is None else json.dumps(body)
        headers = {} if data is None else {"Content-Type": "application/json"}
        authorization = self._authorization(role)
        if authorization is not None:
            headers["Authorization"] = authorization
        if role == "token-in-query":
            path += f"{'&' if '?' in path else '?'}token={self.token(ADMIN)}"
        if role in _PROVE_NOTHING:
            connector = aiohttp.TCPConnector(local_addr=(self.next_source(), 0))
            async with aiohttp.ClientSession(connector=connector, timeout=self._http.timeout) as http:
                return await self._send(http, method, path, data, headers)
        return await self._send(self._http, method, path, data, headers)

    async def _send(
        self,
        http: aiohttp.ClientSession,
        method: str,
        path: str,
        data: str | None,
        headers: Mapping[str, str],
    ) -> Answer:
        async with http.request(
            method,
            yarl.URL(self._admin + path, encoded=True),
            data=data,
            headers=headers,
            skip_auto_headers=["Content-Type"],
            allow_redirects=False,
        ) as answer:
            return Answer(answer.status, _has_reason(await answer.read()))

    def _authorization(self, role: str) -> str | None:
        prefixes = {"lowercase-scheme": "bearer ", "basic-scheme": "Basic ", "no-scheme": ""}
        if role in ("none", "token-in-query"):
            return None
        if role == "empty-header":
            return ""
        if role in prefixes:
            return prefixes[role] + self.token(ADMIN)
        return f"Bearer {self.token(role)}"

    async def prepare(self) -> None:
        """Makes the objects of the recordings; a request that fails is left to the records that need it."""
        lines = [line.strip() for line in _OBJECTS.splitlines() if line.strip()]
        for space in _SPACES:
            lines += [f"PUT /admin/v2/persistent/{space}/{topic}" for topic in _TOPICS]
            lines += [
                f"PUT /admin/v2/persistent/{space}/part1/partitions 3",
                f"PUT /admin/v2/non-persistent/{space}/np1",
                f"PUT /admin/v2/non-persistent/{space}/npp1/partitions 2",
                *(
                    f"PUT /admin/v2/persistent/{space}/{topic}/subscription/sub1 {_LATEST}"
                    for topic in ("top1", "cur1", "part1")
                ),
                f"PUT /admin/v2/persistent/{space}/sch1",
                f"POST /admin/v2/schemas/{space}/sch1/schema {_STRING_SCHEMA}",
            ]
        for line in lines:
            method, path, body = [*line.split(" ", 2), "null"][:3]
            await self.request(method, path, json.loads(body), ADMIN)
        for space in _SPACES:
            for topic in ("top1", "cur1"):
                await self._publish(f"persistent://{space}/{topic}")

    async def _publish(self, topic: str) -> None:
        connection = await RawConnection.open(self.pulsar)
        try:
            connection.send(
                "CONNECT",
                client_version="authz",
                protocol_version=19,
                auth_method_name="token",
                auth_data=self.token(ADMIN).encode().hex(),
            )
            await connection.receive("CONNECTED")
            connection.send("PRODUCER", topic=topic, producer_id=1, request_id=1, producer_name="p")
            await connection.receive("PRODUCER_SUCCESS")
            for index in range(_MESSAGES):
                metadata = MessageMetadata(producer_name="p", sequence_id=index, publish_time=1)
                command = build_command("SEND", {"producer_id": 1, "sequence_id": index})
                connection.send_bytes(payload_frame(command, metadata, b"m%d" % index))
                await connection.receive("SEND_RECEIPT")
        finally:
            await connection.close()


def _has_reason(body: bytes) -> bool:
    try:
        parsed = json.loads(body)
    except ValueError:
        return False
    return isinstance(parsed, dict) and "reason" in parsed


@contextlib.asynccontextmanager
async def authz_broker() -> AsyncIterator[AuthzBroker]:
    """A fresh broker with the settings of the recordings and all that they prepare."""
    timeout = aiohttp.ClientTimeout(total=_REQUEST_TIMEOUT_S)
    with tempfile.TemporaryDirectory(prefix="magnetar-test-") as folder:
        key = secrets.token_bytes(32)
        key_file = Path(folder, "secret.key")
        # A blocking write of 32 bytes, before anything else runs in this loop.
        key_file.write_bytes(key)  # noqa: ASYNC240
        settings = {
            **profile_settings("default"),
            "authenticationEnabled": "true",
            "authorizationEnabled": "true",
            "superUserRoles": ADMIN,
            "authenticationProviders": _TOKEN_PROVIDER,
            "tokenSecretKey": f"file://{key_file}",
            "brokerDeleteInactiveTopicsEnabled": "false",
        }
        with BrokerProcess(Path(folder), settings) as process:
            async with aiohttp.ClientSession(timeout=timeout) as http:
                broker = AuthzBroker(process, key, http)
                await broker.prepare()
                yield broker
