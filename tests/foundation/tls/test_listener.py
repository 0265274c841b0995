"""Connections that begin with a handshake: those that succeed, fail, stall, and are too many. On both event loops."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Awaitable, Callable

import pytest
import uvloop
from cryptography import x509
from cryptography.x509.oid import NameOID

from foundation.tls.certificates import Certificates
from foundation.tls.contexts import ServerFiles, server_context
from foundation.tls.listener import TlsListener, common_name
from tests.support.certificates import Certificates as Made

WAIT_S = 60.0


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("certificates"))


class Echo(asyncio.Protocol):
    """Sends back what comes; keeps the peer's name."""

    shown: list[str | None]

    def __init__(self, shown: list[str | None]) -> None:
        self.shown = shown
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # a transport of either loop
        self.shown.append(common_name(transport))

    def data_received(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.write(data)


class Limit:
    """Admits so many handshakes at once."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.open = 0
        self.ended = 0

    def begin_handshake(self, host: str) -> str | None:
        if self.open >= self.most:
            return "too many"
        self.open += 1
        return None

    def end_handshake(self, host: str) -> None:
        self.open -= 1
        self.ended += 1


class Stage:
    def __init__(self, made: Made, *, most: int = 100, handshake_s: float = 10.0) -> None:
        files = ServerFiles(certificate=made.server, key=made.key(made.server), trusted=made.authority)
        self.shown: list[str | None] = []
        self.lines: list[str] = []
        self.limit = Limit(most)
        from broker.net.listener import bind

        self.listener = TlsListener(
            bind("127.0.0.1", 0),
            lambda: Echo(self.shown),
            Certificates(
                lambda: server_context(files), files.paths(), check_s=300, now_ns=lambda: 0, warn=print
            ),
            self.limit,
            self.lines.append,
            handshake_s,
        )
        self.context = ssl.create_default_context(cafile=made.authority)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(
            "127.0.0.1", self.listener.port, ssl=self.context, server_hostname="localhost"
        )

    async def plain(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.listener.port)

    async def echoes(self, data: bytes = b"hello") -> bool:
        reader, writer = await self.connect()
        writer.write(data)
        answer = await asyncio.wait_for(reader.readexactly(len(data)), WAIT_S)
        writer.transport.abort()
        return answer == data


async def ended(reader: asyncio.StreamReader) -> bool:
    """An alert of TLS may come first."""
    try:
        return len(await asyncio.wait_for(reader.read(), WAIT_S)) < 100
    except (ConnectionError, ssl.SSLError):
        return True


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110  # any condition, which nothing announces
            await asyncio.sleep(0.005)


Test = Callable[[Made], Awaitable[None]]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest, made: Made) -> Callable[[Test], None]:
    """Runs a test on one of the loops that the broker may run on."""

    def on_loop(test: Test) -> None:
        async def main() -> None:
            faults: list[object] = []
            asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
            await test(made)
            assert faults == []

        if request.param == "uvloop":
            uvloop.run(main())
        else:
            asyncio.run(main())

    return on_loop


def test_bytes_pass_both_ways_when_the_handshake_succeeds(run: Callable[[Test], None]) -> None:
    async def test(made: Made) -> None:
        stage = Stage(made)
        assert await stage.echoes(os.urandom(300_000))
        assert stage.limit.open == 0
        assert stage.lines == []
        stage.listener.close()

    run(test)


def test_most_specific_name_of_a_certificate_counts(run: Callable[[Test], None]) -> None:
    async def test(made: Made) -> None:
        parts = [
            (NameOID.COUNTRY_NAME, "DE"),
            (NameOID.COMMON_NAME, "outer"),
            (NameOID.ORGANIZATIONAL_UNIT_NAME, "team"),
            (NameOID.COMMON_NAME, "admin"),
        ]
        subject = x509.Name([x509.NameAttribute(name, value) for name, value in parts])
        certificate = made.issue("many-names", subject=subject)
        stage = Stage(made)
        assert await stage.echoes()
        stage.context.load_cert_chain(certificate, made.key(certificate))
        assert await stage.echoes()
        assert stage.shown == [None, "admin"]
        assert common_name(None) is None
        stage.listener.close()

    run(test)


def test_plain_bytes_end_their_connection_with_one_line(run: Callable[[Test], None]) -> None:
    async def test(made: Made) -> None:
        stage = Stage(made)
        reader, writer = await stage.plain()
        writer.write(b"\x00\x00\x00\x10 is no handshake")
        assert await ended(reader)
        await until(lambda: stage.limit.ended == 1)
        (line,) = stage.lines
        assert "the client does not speak TLS" in line
        assert await stage.echoes()
        writer.close()
        stage.listener.close()

    run(test)


def test_refused_certificate_is_named_in_the_line(run: Callable[[Test], None]) -> None:
    async def test(made: Made) -> None:
        stage = Stage(made)
        expired = made.issue("expired", expired=True)
        stage.context.load_cert_chain(expired, made.key(expired))
        reader, writer = await stage.connect()
        assert await ended(reader)
        await until(lambda: len(stage.lines) == 1)
        assert "certificate verify failed: certificate has expired" in stage.lines[0]
        writer.transport.abort()
        stage.listener.close()

    run(test)


def test_peer_that_connects_and_leaves_is_no_line(run: Callable[[Test], None]) -> None:
    async def test(made: Made) -> None:
        stage = Stage(made)
        _, writer = await stage.plain()
        writer.transport.abort()
        await until(lambda: stage.limit.ended == 1)
        assert stage.lines == []
        stage.listener.close()

    run(test)


def test_stalled_handshake_is_ended_and_counts_until_then(run: Callable[[Test], None]) -> None:
    async def test(made: Made) -> None:
        # Long enough for a third connection to come before the end of the first two.
        stage = Stage(made, most=2, handshake_s=2)
        held = [await stage.plain() for _ in range(2)]
        await until(lambda: stage.limit.open == 2)
        reader, writer = await stage.plain()
        assert await ended(reader)
        writer.close()
        assert "refused: too many" in stage.lines[0]
        for reader, writer in held:
            assert await ended(reader)
            writer.close()
        await until(lambda: stage.limit.open == 0)
        assert [line for line in stage.lines if "no TLS handshake within 2 s" in line] == stage.lines[1:]
        assert await stage.echoes()
        stage.listener.close()

    run(test)


def test_close_ends_handshakes(run: Callable[[Test], None]) -> None:
    async def test(made: Made) -> None:
        stage = Stage(made)
        reader, writer = await stage.plain()
        await until(lambda: stage.limit.open == 1)
        stage.listener.close()
        stage.listener.close()
        assert await ended(reader)
        await until(lambda: stage.limit.open == 0)
        writer.close()

    run(test)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts files in /proc")
def test_failed_handshakes_leave_no_file_open(run: Callable[[Test], None]) -> None:
    async def test(made: Made) -> None:
        stage = Stage(made)

        def count() -> int:
            return len(os.listdir("/proc/self/fd"))

        counts = []
        for ended_before in (0, 20):
            for number in range(20):
                reader, writer = await stage.plain()
                if number % 2:
                    writer.write(b"no handshake")
                    assert await ended(reader)
                writer.transport.abort()
            # Also of those that had left before they were accepted.
            await until(lambda ended=ended_before + 20: stage.limit.ended == ended)  # type: ignore[misc]
            counts.append(count())
        # A loop may open some of its own at first; it closes a socket some turns after its handshake.
        await until(lambda: count() <= counts[0] + 2)
        stage.listener.close()

    run(test)
