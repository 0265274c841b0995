"""The server of a metadata file: other processes, sessions over its loss and restart, who may connect, and bad frames."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from bookkeeper.metadata.metadata_server import MetadataServer
from bookkeeper.metadata.metadata_store import ABSENT, Check, Ephemeral, Put, SessionState, Versioned
from bookkeeper.metadata.socket_frames import FRAME_BYTES_MAX, encode
from bookkeeper.metadata.socket_metadata_store import SocketMetadataStore
from bookkeeper.metadata.sqlite_metadata_store import SqliteMetadataStore
from foundation.model.errors import BadVersion, MetadataError, MetadataUnanswered

ROOT: Final = Path(__file__).parents[3]
LEASE: Final = Ephemeral("/leases/a", b"me")
SHORT_S: Final = 0.5
"""The timeout of a session whose end a test awaits."""
LONG_S: Final = 60.0


async def client(folder: Path, session_s: float = LONG_S, timeout_s: float = 60) -> SocketMetadataStore:
    return await SocketMetadataStore.open(folder / "m.sock", session_timeout_s=session_s, timeout_s=timeout_s)


async def is_gone(store: SocketMetadataStore, key: str) -> None:
    """Returns when a watch has told of the key's end."""
    changed = asyncio.Event()
    stop = await store.watch(key, changed.set)
    while await store.get(key) is not None:
        await asyncio.wait_for(changed.wait(), 60)
        changed.clear()
    stop()


async def serve(folder: Path) -> MetadataServer:
    return await MetadataServer.start(folder / "m.db", folder / "m.sock")


class ServerProcess:
    """`magnetar metadata serve` in a process of its own, which may be killed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        command = ["-m", "magnetar", "metadata", "serve", str(self._folder / "m.db")]
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, *command, "--socket", str(self._folder / "m.sock")),
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )
        assert self._process.stdout is not None
        line = (await self._process.stdout.readline()).decode()
        assert line == f"metadataStoreUrl=unix:{self._folder / 'm.sock'}\n"

    async def end(self, how: signal.Signals) -> int:
        assert self._process is not None
        self._process.send_signal(how)
        return await self._process.wait()


@pytest.fixture
async def process(tmp_path: Path) -> AsyncIterator[ServerProcess]:
    process = ServerProcess(tmp_path)
    await process.start()
    yield process
    assert await process.end(signal.SIGTERM) == 0


class News:
    """News of a session, one after the other."""

    def __init__(self, store: SocketMetadataStore) -> None:
        self._states: asyncio.Queue[SessionState] = asyncio.Queue()
        store.listen(self._states.put_nowait)

    async def next(self) -> SessionState:
        async with asyncio.timeout(60):
            return await self._states.get()

    def __bool__(self) -> bool:
        return not self._states.empty()


OTHER_PROCESS: Final = """
import asyncio, sys
from pathlib import Path
from bookkeeper.metadata.metadata_store import Ephemeral
from bookkeeper.metadata.socket_metadata_store import SocketMetadataStore
from foundation.model.errors import BadVersion

async def main():
    store = await SocketMetadataStore.open(Path(sys.argv[1]), session_timeout_s=float(sys.argv[2]), timeout_s=60)
    await store.put_all([Ephemeral("/leases/other", b"process")])
    counted = 0
    while counted < 100:
        found = await store.get("/count")
        try:
            await store.put("/count", b"%d" % (int(found.value) + 1), found.version)
            counted += 1
        except BadVersion:
            pass
    print("counted", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_second_process_counts_with_this_one_and_its_lease_ends_when_it_is_killed(
    tmp_path: Path,
) -> None:
    server = await serve(tmp_path)
    store = await client(tmp_path)
    await store.put("/count", b"0")
    arguments = ("-c", OTHER_PROCESS, str(tmp_path / "m.sock"), str(SHORT_S))
    other = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=subprocess.PIPE, cwd=ROOT)
    counted = 0
    while counted < 100:
        found = await store.get("/count")
        assert found is not None
        try:
            await store.put("/count", b"%d" % (int(found.value) + 1), found.version)
            counted += 1
        except BadVersion:
            pass
    assert other.stdout is not None
    assert await other.stdout.readline() == b"counted\n"
    assert await store.get("/count") == Versioned(b"200", 200)
    assert await store.get("/leases/other") == Versioned(b"process", 0)
    other.kill()
    await other.wait()
    await is_gone(store, "/leases/other")
    await store.close()
    await server.close()


async def test_session_is_suspended_then_lost_and_begins_anew_with_the_next_server(
    process: ServerProcess, tmp_path: Path
) -> None:
    store = await client(tmp_path, SHORT_S)
    news = News(store)
    await store.put_all([LEASE, Put("/lasting", b"1", ABSENT)])
    changed = asyncio.Event()
    await store.watch("/lasting", changed.set)
    await process.end(signal.SIGKILL)
    assert await news.next() is SessionState.SUSPENDED
    waiting = asyncio.ensure_future(store.get("/lasting"))
    writing = asyncio.ensure_future(store.put("/lasting", b"2", 0))
    assert await news.next() is SessionState.LOST
    assert not waiting.done()
    await process.start()
    assert await news.next() is SessionState.RE_ESTABLISHED
    found = await waiting
    assert found is not None
    assert await writing == 1
    await asyncio.wait_for(changed.wait(), 60)
    # The server gives the former session its whole time again: it cannot know how long it was away.
    await is_gone(store, LEASE.key)
    assert await store.put_all([LEASE]) == [0]
    changed.clear()
    other = await client(tmp_path)
    await other.put("/lasting", b"3")
    await asyncio.wait_for(changed.wait(), 60)
    await other.close()
    await store.close()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_session_goes_on_over_a_restart_of_the_server_and_keeps_its_lease(
    process: ServerProcess, tmp_path: Path, how: signal.Signals
) -> None:
    store, other = await client(tmp_path), await client(tmp_path)
    news = News(store)
    await store.put_all([LEASE, Put("/lasting", b"1", ABSENT)])
    await process.end(how)
    assert await news.next() is SessionState.SUSPENDED
    await process.start()
    assert await news.next() is SessionState.CONNECTED
    with pytest.raises(BadVersion):
        await other.put_all([LEASE])
    assert await store.put_all([Check(LEASE.key, 0), Put("/lasting", b"2", 0)]) == [0, 1]
    await store.close()
    await other.sync()
    assert await other.put_all([LEASE]) == [0]
    await other.close()


async def test_write_that_was_out_raises_when_the_connection_breaks_and_a_read_is_asked_again(
    tmp_path: Path,
) -> None:
    """The first server answers nothing after the beginning of the session."""
    silent = asyncio.Event()

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4096)
        writer.write(encode({"session": "x-60000"}))
        await reader.readuntil(b'"write"')
        silent.set()
        writer.close()

    first = await asyncio.start_unix_server(accepted, tmp_path / "m.sock")
    store = await client(tmp_path)
    reading = asyncio.ensure_future(store.get("/a"))
    writing = asyncio.ensure_future(store.put("/a", b"1"))
    await asyncio.wait_for(silent.wait(), 60)
    first.close()
    server = await serve(tmp_path)
    with pytest.raises(MetadataUnanswered, match="perhaps carried out"):
        await writing
    assert await reading is None
    await store.close()
    await server.close()


async def test_write_on_a_connection_that_is_closed_already_goes_out_on_the_next_one(tmp_path: Path) -> None:
    server = await serve(tmp_path)
    store = await client(tmp_path)
    assert store._writer is not None
    store._writer.close()
    assert await store.put("/a", b"1") == 0
    assert await store.get("/a") == Versioned(b"1", 0)
    await store.close()
    await server.close()


async def test_server_that_stands_still_is_away_and_keys_of_a_client_that_does_end(
    process: ServerProcess, tmp_path: Path
) -> None:
    store, other = await client(tmp_path, SHORT_S), await client(tmp_path)
    news = News(store)
    await store.put_all([LEASE])
    assert process._process is not None
    process._process.send_signal(signal.SIGSTOP)
    assert await news.next() is SessionState.SUSPENDED
    assert await news.next() is SessionState.LOST
    process._process.send_signal(signal.SIGCONT)
    assert await news.next() is SessionState.RE_ESTABLISHED
    await is_gone(other, LEASE.key)
    await store.close()
    await other.close()


async def test_close_finishes_writes_and_later_calls_are_refused(tmp_path: Path) -> None:
    server = await serve(tmp_path)
    store, other = await client(tmp_path), await client(tmp_path)
    writes = [asyncio.ensure_future(store.put("/a", b"%d" % number)) for number in range(20)]
    await asyncio.sleep(0)
    await store.close()
    assert [await write for write in writes] == list(range(20))
    with pytest.raises(MetadataError, match="closed"):
        await store.put("/a", b"1")
    assert await other.get("/a") == Versioned(b"19", 19)
    await other.close()
    await server.close()


async def test_call_raises_when_no_server_comes_back_in_time(tmp_path: Path) -> None:
    server = await serve(tmp_path)
    store = await client(tmp_path, timeout_s=0.1)
    news = News(store)
    await server.close()
    assert await news.next() is SessionState.SUSPENDED
    for call in (store.get("/a"), store.put("/a", b"1"), store.sync()):
        with pytest.raises(MetadataUnanswered, match=r"did not answer within 0\.1 s"):
            await call
    await store.close()


async def test_socket_is_its_users_alone_and_goes_with_the_server(tmp_path: Path) -> None:
    former = os.umask(0)
    try:
        server = await serve(tmp_path)
    finally:
        os.umask(former)
    assert stat.S_IMODE((tmp_path / "m.sock").stat().st_mode) == 0o600
    await server.close()
    assert not (tmp_path / "m.sock").exists()


async def test_second_server_of_a_file_is_refused_and_harms_nothing(tmp_path: Path) -> None:
    server = await serve(tmp_path)
    store = await client(tmp_path)
    await store.put_all([LEASE])
    with pytest.raises(MetadataError, match="another process serves"):
        await MetadataServer.start(tmp_path / "m.db", tmp_path / "other.sock")
    assert await store.get(LEASE.key) is not None
    await store.close()
    await server.close()


async def test_path_that_is_too_long_for_a_socket_is_named(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 200)
    with pytest.raises(MetadataError, match=r"cannot listen at .*too long"):
        await MetadataServer.start(tmp_path / "m.db", path)


async def test_open_names_the_socket_where_no_server_listens(tmp_path: Path) -> None:
    with pytest.raises(
        MetadataError, match=r"m\.sock within 0\.1 s; start one with `magnetar metadata serve`"
    ):
        await client(tmp_path, 0.1)


def head(**fields: object) -> bytes:
    return encode(fields)


OPEN: Final = head(op="open", session="", timeout_ms=60_000)
TOO_LONG: Final = (FRAME_BYTES_MAX + 1).to_bytes(4, "big")


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (TOO_LONG, f"a frame of {FRAME_BYTES_MAX + 1} bytes; allowed is 4 to {FRAME_BYTES_MAX}"),
        (b"GET / HTTP/1.1\r\n\r\n", "a frame of 1195725856 bytes"),
        (b"\0\0\0\x03\0\0\0", "a frame of 3 bytes"),
        (b"\0\0\0\x06\0\0\0\x09{}", "no JSON object"),
        (b"\0\0\0\x06\0\0\0\x02[]", "no JSON object"),
        (b"\0\0\0\x06\0\0\0\x02{\xff", "no JSON object"),
        (head(op="get", id=1, key="/a"), "the first frame must open a session"),
        (head(op="open", session=7, timeout_ms=1000), "session is no text: 7"),
        (head(op="open", session="", timeout_ms=0), "timeout is 1 to"),
        (head(op="open", session="", timeout_ms=True), "timeout_ms is no whole number: True"),
        (OPEN + TOO_LONG, "allowed is 4 to"),
        (OPEN + head(op="get", key="/a"), "id is no whole number: None"),
        (OPEN + head(op="get", id=1), "key is no text: None"),
        (OPEN + head(op="drop", id=1), "no operation 'drop'"),
        (OPEN + head(op="write", id=1), "changes is no list: None"),
        (OPEN + head(op="write", id=1, changes=[]), "the changes have 0 bytes of values"),
        (
            OPEN + head(op="write", id=1, changes=[["/a", 5, None, False, False]]),
            "5 bytes of values, and the",
        ),
        (OPEN + head(op="write", id=1, changes=[["/a", 0, None, False, False]]), "no change of a key"),
        (OPEN + head(op="write", id=1, changes=[[7, None, None, False, False]]), "no change of a key"),
        (OPEN + head(op="write", id=1, changes=["/a"]), "no change of a key: '/a'"),
    ],
)
async def test_bad_input_is_answered_with_its_reason_and_the_server_goes_on(
    tmp_path: Path, sent: bytes, reason: str
) -> None:
    server = await serve(tmp_path)
    reader, writer = await asyncio.open_unix_connection(str(tmp_path / "m.sock"))
    writer.write(sent)
    answers = b""
    while b'"error"' not in answers or not answers.endswith(b"}"):
        part = await asyncio.wait_for(reader.read(65536), 60)
        assert part, answers
        answers += part
    error = json.loads(answers[answers.index(b'{"id"') :])["error"]
    assert reason in error
    writer.close()
    store = await client(tmp_path)
    assert await store.put("/a", b"1") == 0
    await store.close()
    await server.close()


async def test_value_above_the_bound_or_without_bytes_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    server = await serve(tmp_path)
    store = await client(tmp_path)
    for value in (b"", bytes(store.value_bytes_max + 1)):
        with pytest.raises(MetadataError, match="/a: values have 1 to 100000000 bytes"):
            await store.put("/a", value)
    await store.close()
    await server.close()


async def test_file_that_was_served_opens_without_a_server_and_without_its_leases(tmp_path: Path) -> None:
    server = await serve(tmp_path)
    store = await client(tmp_path)
    await store.put_all([LEASE, Put("/lasting", b"1", ABSENT)])
    await server.close()
    alone = SqliteMetadataStore(tmp_path / "m.db")
    assert await alone.children("/leases") == []
    assert await alone.get("/lasting") == Versioned(b"1", 0)
    await alone.close()
    await store.close()


async def test_deletion_and_checked_write_are_made_in_their_session_or_not_at_all(
    process: ServerProcess, tmp_path: Path
) -> None:
    """The next holder of a lease may have made the key anew, with the same version."""
    store = await client(tmp_path, SHORT_S)
    news = News(store)
    await store.put("/a", b"1")
    await process.end(signal.SIGKILL)
    assert await news.next() is SessionState.SUSPENDED
    deleting = asyncio.ensure_future(store.delete("/a", 0))
    checked = asyncio.ensure_future(store.put_all([Put("/c", b"1", ABSENT), Check("/a", 0)]))
    writing = asyncio.ensure_future(store.put("/b", b"1"))
    assert await news.next() is SessionState.LOST
    await process.start()
    assert await news.next() is SessionState.RE_ESTABLISHED
    with pytest.raises(MetadataUnanswered, match="session in which this was asked has ended"):
        await deleting
    with pytest.raises(MetadataUnanswered, match="session in which this was asked has ended"):
        await checked
    assert await writing == 0
    assert await store.get("/c") is None
    assert await store.get("/a") == Versioned(b"1", 0)
    await store.delete("/a", 0)
    await store.close()
