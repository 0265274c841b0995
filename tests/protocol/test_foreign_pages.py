"""Requests of foreign web pages are told from those of tools by their headers."""

from __future__ import annotations

import pytest
from multidict import CIMultiDict

from protocol.foreign_pages import LOG_INTERVAL_S, ForeignPages

PAGES = ForeignPages(["broker-1", "Pulsar.Example.", "0.0.0.0"], "name it in advertisedListeners")


def status(method: str = "GET", host: str | None = "localhost:8080", **headers: str) -> int:
    """Returns the status of the refusal, 200 without one. `content_type` stands for `Content-Type`."""
    given = CIMultiDict({name.replace("_", "-"): value for name, value in headers.items()})
    if host is not None:
        given["host"] = host
    refusal = PAGES.refusal(method, given)
    return 200 if refusal is None else refusal.status


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:8080",
        "localhost.:8080",
        "app.localhost:8080",
        "127.0.0.1:8080",
        "10.1.2.3",
        "[::1]:8080",
        "[fe80::1]",
        "broker-1:8080",
        "BROKER-1",
        "pulsar.example:80",
        "pulsar.example.",
        "0.0.0.0:8080",
        None,
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_own_host_passes(host: str | None, method: str) -> None:
    assert status(method, host) == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8080",
        "localhost.evil.example",
        "notlocalhost",
        "127.0.0.1.evil.example",
        "127.0.0.1.nip.example:8080",
        "broker-1.evil.example",
        "broker-1@evil.example",
        "broker-1,evil.example",
        "broker-1 evil.example",
        "[::1",
        "[::1].evil.example",
        "[evil.example]",
        "broker-1:port",
        "broker-1:123456",
        ":8080",
        "xn--lcalhost-0za",
        "löcalhost",
        "..",
        "a" * 70_000,
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "OPTIONS"])
def test_foreign_host_is_refused(host: str, method: str) -> None:
    assert status(method, host) == 421


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "TRACE", "GURKE"])
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "http://evil.example:8080"},
        {"Origin": "http://localhost:3000"},
        {"Origin": "http://localhost"},
        {"Origin": "http://127.0.0.1:8080"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": "file://"},
        {"Origin": "http://localhost:8080.evil.example"},
        {"Origin": "http://localhost:8080", "Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "gurke"},
        {"origin": "http://evil.example", "sec-fetch-site": "same-origin"},
    ],
)
def test_write_of_a_foreign_page_is_refused(method: str, headers: dict[str, str]) -> None:
    assert status(method, **headers) == 403


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "http://localhost:8080"},
        {"Origin": "HTTPS://LocalHost:8080", "Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none"},
    ],
)
def test_write_of_a_tool_or_an_own_page_passes(headers: dict[str, str]) -> None:
    assert status("POST", content_type="application/json", **headers) == 200


def test_origin_is_refused_when_there_is_no_host_to_compare() -> None:
    assert status("POST", None, Origin="null") == 403
    assert status("POST", None, Origin="http://") == 403


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_read_of_a_foreign_page_passes_because_its_browser_keeps_the_answer(method: str) -> None:
    assert status(method, Origin="http://evil.example", content_type="text/plain") == 200


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "text/plain;charset=UTF-8",
        "TEXT/PLAIN ; x",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
    ],
)
def test_post_is_refused_when_a_page_may_send_its_content_type_unasked(content_type: str) -> None:
    assert status("POST", content_type=content_type) == 415
    assert status("PUT", content_type=content_type) == 200, "a browser asks before it sends a PUT"


@pytest.mark.parametrize(
    "content_type", ["application/json", "application/json;charset=utf-8", "", "text/json"]
)
def test_post_passes_with_another_content_type(content_type: str) -> None:
    assert status("POST", content_type=content_type) == 200


def test_reason_names_the_value_and_the_remedy_in_few_characters() -> None:
    refusal = PAGES.refusal("GET", {"Host": "evil.example"})
    assert refusal is not None
    assert refusal.reason == (
        "Host 'evil.example' is no name of this server: use an address, or name it in advertisedListeners"
    )
    for headers in ({"Host": "x" * 5000 + "\n"}, {"Host": "localhost", "Origin": "\n" * 5000}):
        long = PAGES.refusal("POST", headers)
        assert long is not None
        assert len(long.reason) < 600
        assert "\n" not in long.reason


def test_log_tells_of_refusals_once_a_minute_with_their_number() -> None:
    pages = ForeignPages([], "")
    assert [pages.count(second) for second in (100.0, 100.0, 130.0, 159.9)] == [1, 0, 0, 0]
    assert pages.count(100.0 + LOG_INTERVAL_S) == 4
