"""MetricsServer: its counters, and bytes that are no request."""

from __future__ import annotations

import logging

import pytest

from bookkeeper.repair.http import MetricsServer
from bookkeeper.repair.stats import RecoveryStats
from tests.support.malformed_http import MALFORMED, whole_answer


async def test_bytes_that_are_no_request_are_neither_answered_nor_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = MetricsServer(RecoveryStats())
    await server.start("127.0.0.1", 0)
    try:
        with caplog.at_level(logging.DEBUG):
            for data in MALFORMED:
                whole = await whole_answer(server.port, data)
                assert whole.startswith((b"HTTP/1.0 4", b"HTTP/1.1 4")), data
                assert b"planted" not in whole
        assert "not valid HTTP" in caplog.text
        assert "planted" not in caplog.text
        scrape = b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
        assert (await whole_answer(server.port, scrape)).startswith(b"HTTP/1.1 200")
    finally:
        await server.close()
