"""Credentials of a request that are no text are wrong ones, no error of the server."""

from __future__ import annotations

import pytest
from yarl import URL

from tests.broker.security.authentication.test_at_both_ports import SETTINGS
from tests.support.malformed_http import whole_answer
from tests.support.memory_broker import memory_broker


@pytest.mark.parametrize("scheme", [b"Bearer", b"Basic"])
async def test_bytes_that_are_no_text_are_a_wrong_proof(scheme: bytes) -> None:
    async with memory_broker(*SETTINGS) as broker:
        answer = await whole_answer(
            URL(broker.addresses.admin_url).port or 0,
            b"GET /admin/v2/clusters HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
            b"Authorization: " + scheme + b" \xff\r\n\r\n",
        )
    assert answer.startswith(b"HTTP/1.1 401 ")
