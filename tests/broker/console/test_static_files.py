"""The files of the console's page: headers, caching, compression, and paths that lead nowhere."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestClient, TestServer

from broker.console.static_files import StaticFiles, read_folder

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
PAGE = b"<!doctype html><title>x</title>" + b"<p>the same</p>" * 100


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[ClientSession]:
    (tmp_path / "secret.txt").write_bytes(b"outside")
    pages = tmp_path / "pages"
    (pages / "charts").mkdir(parents=True)
    (pages / "index.html").write_bytes(PAGE)
    (pages / "charts" / "line.js").write_bytes(b"export {}")
    (pages / "notes.md").write_bytes(b"not a file of the page")
    app = web.Application()
    app.add_routes(StaticFiles(pages).routes())
    async with TestClient(TestServer(app)) as found:
        yield found  # type: ignore[misc]


async def test_start_names_all_services_when_the_client_is_no_browser(client: ClientSession) -> None:
    async with client.get("/", headers=BROWSER) as answer:
        assert (answer.status, await answer.read()) == (200, PAGE)
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    for accept in ({}, {"Accept": "*/*"}, {"Accept": "application/json"}):
        async with client.get("/", headers=accept) as answer:
            text = await answer.text()
            assert (answer.status, answer.content_type) == (200, "text/plain")
            assert text.count("\n") == 1
            assert all(word in text for word in ("console http", "/admin/v2", "/metrics", "documentation"))


async def test_files_admit_no_foreign_content(client: ClientSession) -> None:
    for path in ("/", "/console/charts/line.js", "/console/nosuch.js"):
        async with client.get(path, headers=BROWSER) as answer:
            policy = answer.headers["Content-Security-Policy"].split("; ")
            assert {"default-src 'self'", "frame-ancestors 'none'"} <= set(policy)
            assert not [word for word in policy if "unsafe" in word or "http" in word]
            assert answer.headers["X-Content-Type-Options"] == "nosniff"


async def test_unchanged_file_is_not_sent_again(client: ClientSession) -> None:
    async with client.get("/console/index.html") as answer:
        etag = answer.headers["ETag"]
    async with client.get("/console/index.html", headers={"If-None-Match": etag}) as answer:
        assert (answer.status, await answer.read()) == (304, b"")
    async with client.get("/console/index.html", headers={"If-None-Match": '"other"'}) as answer:
        assert answer.status == 200


async def test_compressed_file_has_the_same_content(client: ClientSession) -> None:
    async with client.get("/console/index.html", headers={"Accept-Encoding": "gzip"}) as answer:
        assert answer.headers["Content-Encoding"] == "gzip"
        assert int(answer.headers["Content-Length"]) < len(PAGE) / 2
        assert await answer.read() == PAGE  # The client has decompressed it.
    async with client.get("/console/charts/line.js", headers={"Accept-Encoding": "gzip"}) as answer:
        assert "Content-Encoding" not in answer.headers  # Compressed it would be longer.


@pytest.mark.parametrize(
    "path",
    ["/console/../secret.txt", "/console/%2e%2e/secret.txt", "/console/..%2fsecret.txt", "/console/notes.md"],
)
async def test_path_outside_of_the_folder_is_not_found(client: ClientSession, path: str) -> None:
    async with client.get(path) as answer:
        assert answer.status == 404
        assert b"outside" not in await answer.read()


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
async def test_files_are_only_read(client: ClientSession, method: str) -> None:
    for path in ("/", "/console/index.html"):
        async with client.request(method, path) as answer:
            assert answer.status == 405


def test_every_file_of_the_package_is_served() -> None:
    files = read_folder(Path("broker/console/pages"))
    assert all(file.body for file in files.values())
