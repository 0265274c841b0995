"""The bookie's HTTP port: the JSON that BookKeeper's server gives, and a collection asked for over it."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from magnetar.commands.bookie_command import main
from tests.bookie_stub.bookie_process import Process
from tests.support.malformed_http import MALFORMED, PLANTED, whole_answer
from tests.support.ports import accepts
from tests.support.raw_http import send


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    process = Process(tmp_path / "data")
    process.start("bookieId=the-bookie:3181")
    yield process
    assert process.process is not None
    process.process.kill()
    process.process.communicate()


def ask(process: Process, name: str, method: str = "GET", body: bytes | None = None) -> tuple[int, str]:
    url = f"{process.addresses['http']}/api/v1/bookie/{name}"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data=body, method=method)) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_http_api_reports_state_and_disk_space(process: Process) -> None:
    """Names and types are those of BookKeeper 4.17.3."""
    assert ask(process, "is_ready") == (200, "OK")
    code, text = ask(process, "state")
    assert (code, json.loads(text)) == (
        200,
        {"running": True, "readOnly": False, "shuttingDown": False, "availableForHighPriorityWrites": True},
    )
    info = json.loads(ask(process, "info")[1])
    assert 0 < info["freeSpace"] < info["totalSpace"]
    assert json.loads(ask(process, "gc")[1]) == {"is_in_force_gc": "false"}
    (details,) = json.loads(ask(process, "gc_details")[1])
    assert details["majorCompactionCounter"] == details["minorCompactionCounter"] == 0
    assert abs(details["lastMajorCompactionTime"] / 1000 - time.time()) < 60
    assert not details["forceCompacting"]
    assert ask(process, "state", "PUT")[0] == 405


def test_ports_of_a_bookie_are_on_one_address_of_the_loopback(process: Process) -> None:
    for address in (process.addresses["bookie"], process.addresses["http"].removeprefix("http://")):
        port = int(address.rpartition(":")[2])
        assert accepts("127.0.0.1", port)
        assert not accepts("127.0.0.2", port), "on 0.0.0.0 this address would be served too"


async def test_bytes_that_are_no_request_are_neither_answered_nor_logged(process: Process) -> None:
    put = b"PUT /api/v1/bookie/gc HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
    chunks = put + b"Transfer-Encoding: chunked\r\n\r\n"
    bodies = (
        chunks + PLANTED + b"\r\n",
        put + b"Content-Encoding: gzip\r\nContent-Length: 24\r\n\r\n" + PLANTED,
    )
    for data in (*MALFORMED, *bodies):
        whole = await whole_answer(int(process.addresses["http"].rpartition(":")[2]), data)
        assert whole.startswith((b"HTTP/1.0 4", b"HTTP/1.1 4")), data
        assert b"planted" not in whole
    assert process.process is not None
    assert process.process.stderr is not None
    process.process.terminate()
    log = process.process.stderr.read()
    assert "not valid HTTP" in log
    assert "planted" not in log


@pytest.mark.parametrize(
    ("line", "headers", "host", "status"),
    [
        ("PUT /api/v1/bookie/gc", ["Origin: http://evil.example"], None, 403),
        ("PUT /api/v1/bookie/gc", ["Sec-Fetch-Site: cross-site"], None, 403),
        ("POST /api/v1/bookie/gc", ["Content-Type: text/plain"], None, 415),
        ("GET /metrics", [], "evil.example:8000", 421),
        ("GET /api/v1/bookie/info", [], "the-bookie.evil.example", 421),
        ("GET /metrics", ["Origin: http://evil.example"], None, 200),
        ("GET /metrics", [], "the-bookie:8000", 200),
        ("GET /heartbeat", [], "localhost:8000", 200),
        ("GET /heartbeat", [], "10.0.0.7", 200),
        ("PUT /api/v1/bookie/gc", ["Content-Type: application/x-www-form-urlencoded"], None, 200),
    ],
)
def test_http_port_refuses_foreign_pages_and_serves_tools(
    process: Process, line: str, headers: list[str], host: str | None, status: int
) -> None:
    answer = send(process.addresses["http"], line, *headers, host=host)
    assert answer.status == status
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_http_api_starts_a_garbage_collection(process: Process, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = ask(process, "gc", "PUT", b'{"forceMajor": false, "forceMinor": true}')
    assert (code, text) == (200, '"Triggered GC on BookieServer: the-bookie:3181"')
    deadline = time.monotonic() + 60
    while json.loads(ask(process, "gc")[1])["is_in_force_gc"] == "true":
        assert time.monotonic() < deadline
    (details,) = json.loads(ask(process, "gc_details")[1])
    assert (details["minorCompactionCounter"], details["majorCompactionCounter"]) == (1, 0)
    assert main(["compact", "--url", process.addresses["http"]]) == 0
    out, errors = capsys.readouterr()
    assert json.loads(out)[0]["majorCompactionCounter"] == 1
    assert errors.startswith("Triggered GC on BookieServer: the-bookie:3181\n")


def test_http_api_compacts_location_indexes(process: Process) -> None:
    """Paths and request bodies are those of BookKeeper's server."""
    path = str(process.directory / "bookie/ledgers/current/locations")
    assert json.loads(ask(process, "entry_location_compact")[1]) == {path: False}
    assert ask(process, "entry_location_compact", "PUT", b"{}")[0] == 200
    wanted = json.dumps({"entryLocationRocksDBCompact": True, "entryLocations": path}).encode()
    for count, body in enumerate((b'{"entryLocationRocksDBCompact": true}', wanted), 1):
        code, text = ask(process, "entry_location_compact", "PUT", body)
        assert (code, text) == (200, '"Triggered entry Location RocksDB compact on bookie:the-bookie:3181"')
        deadline = time.monotonic() + 60
        while json.loads(ask(process, "entry_location_compact")[1])[path]:
            assert time.monotonic() < deadline
        (details,) = json.loads(ask(process, "gc_details")[1])
        assert details["entryLocationCompactionCounter"] == count
        assert abs(details["lastEntryLocationCompactionTime"] / 1000 - time.time()) < 60
    code, text = ask(process, "entry_location_compact", "PUT", wanted.replace(b"/locations", b"/elsewhere"))
    assert code == 400
    assert path in text


@pytest.mark.parametrize("body", [b"x", b"[]", b'{"forceMajor": 1}'])
def test_http_api_names_the_allowed_body_when_a_request_is_bad(process: Process, body: bytes) -> None:
    code, text = ask(process, "gc", "PUT", body)
    assert code == 400
    assert "forceMajor" in text


def test_compact_command_fails_when_no_bookie_answers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compact", "--url", "http://127.0.0.1:1"]) == 1
    assert "http://127.0.0.1:1/api/v1/bookie/gc" in capsys.readouterr().err


async def test_scrape_has_the_counters_of_garbage_collection(process: Process) -> None:
    url = process.addresses["http"] + "/metrics"
    text = await asyncio.to_thread(lambda: urllib.request.urlopen(url).read().decode())
    assert "bookie_MINOR_COMPACTION_TOTAL 0" in text
    assert "bookie_ACTIVE_ENTRY_LOG_SPACE_BYTES 0" in text
