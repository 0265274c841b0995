"""The health port, asked while the loop turns and while it is held."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import urllib.error
import urllib.request

import pytest

from broker.compose.health_port import CONNECTIONS_MAX, HealthPort
from foundation.loop.loop_watch import LoopWatch
from tests.support.malformed_http import MALFORMED, PLANTED, whole_answer


def ask(port: int, path: str = "/live") -> tuple[int, dict[str, object]]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


@pytest.fixture
async def watch() -> LoopWatch:
    watch = LoopWatch(asyncio.get_running_loop().call_later, time.monotonic_ns)
    watch.start()
    return watch


async def test_turning_loop_is_alive(watch: LoopWatch) -> None:
    health = HealthPort(watch)
    port = health.open("127.0.0.1", 0)
    status, value = await asyncio.to_thread(ask, port)
    assert (status, value["status"]) == (200, "alive")
    assert (await asyncio.to_thread(ask, port, "/x"))[0] == 404
    await asyncio.to_thread(health.close)


async def test_held_loop_is_told_by_the_thread(watch: LoopWatch) -> None:
    health = HealthPort(watch, stuck_s=0.3)
    port = health.open("127.0.0.1", 0)
    asked = threading.Event()
    found: list[tuple[int, dict[str, object]]] = []

    def ask_until_stuck() -> None:
        while not found or found[-1][0] == 200:
            found.append(ask(port))
        asked.set()

    threading.Thread(target=ask_until_stuck).start()
    # The loop is held here until the thread has its answer.
    assert asked.wait(60)
    assert found[-1][0] == 503
    assert str(found[-1][1]["reason"]).startswith("the event loop has not turned for ")
    await asyncio.to_thread(health.close)


async def test_silent_connections_do_not_silence_the_port(watch: LoopWatch) -> None:
    health = HealthPort(watch)
    port = health.open("127.0.0.1", 0)
    silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(CONNECTIONS_MAX - 1)]
    assert (await asyncio.to_thread(ask, port))[0] == 200
    for _, writer in silent:
        writer.close()
    await asyncio.to_thread(health.close)


async def test_port_in_use_names_the_address(watch: LoopWatch) -> None:
    health = HealthPort(watch)
    port = health.open("127.0.0.1", 0)
    with pytest.raises(OSError, match=f"127.0.0.1:{port}"):
        HealthPort(watch).open("127.0.0.1", port)
    await asyncio.to_thread(health.close)


async def test_bytes_that_are_no_request_are_not_answered(
    watch: LoopWatch, capfd: pytest.CaptureFixture[str]
) -> None:
    health = HealthPort(watch)
    port = health.open("127.0.0.1", 0)
    for data in (*MALFORMED, b"GET /" + PLANTED + b" HTTP/1.1\r\nConnection: close\r\n\r\n"):
        assert b"planted" not in await whole_answer(port, data)
    await asyncio.to_thread(health.close)
    assert "planted" not in "".join(capfd.readouterr())
