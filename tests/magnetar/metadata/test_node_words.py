"""Nodes of metadata stores in words: ours, Apache's, and bytes of no known form."""

from __future__ import annotations

import pytest

from broker.managed_ledger.ledger_list import LedgerInfo
from broker.managed_ledger.managed_ledger_info import (
    CursorInfo,
    ManagedLedgerInfo,
)
from broker.managed_ledger.records.pulsar_records import (
    Compression,
    StoredCursor,
    encode_cursor,
    encode_ledger_list,
)
from foundation.model.position import Position
from magnetar.metadata.node_words import words_of
from magnetar.snapshot.node_rows import Node
from protocol.ledger_metadata import LedgerMetadata, LedgerSegment, encode, ledger_key
from protocol.pulsar_api_pb2 import CompressionType

LISTS = "/managed-ledgers/shop/orders/persistent"
LOG = encode_ledger_list(ManagedLedgerInfo([LedgerInfo(5, 10, 1000, 1), LedgerInfo(9)]))
CURSOR = encode_cursor(StoredCursor(CursorInfo(Position(5, 3), {}, [(5, 0, 0b1010_0000)])))


def words(path: str, value: bytes) -> str:
    return "\n".join(words_of(Node(path, value, 3, None, None)))


def test_our_list_and_cursor_are_shown_with_their_gist() -> None:
    text = words(f"{LISTS}/p", LOG)
    assert text.startswith(f"{LISTS}/p: ledgers of persistent://shop/orders/p; version 3, ")
    assert (
        "# 2 ledgers with 10 entries and 1,000 bytes, without those of the last ledger, which is open" in text
    )
    assert "ledgerId: 9" in text
    text = words(f"{LISTS}/p/a%2Fb", CURSOR)
    assert "cursor 'a/b' of persistent://shop/orders/p" in text
    assert "# all up to 5:3 is acknowledged, and 2 entries after it" in text


def test_values_of_former_versions_are_shown_as_json() -> None:
    text = words(
        f"{LISTS}/p", b'{"ledgers":[{"id":5,"entries":10,"size":1000,"closed":1},{"id":9}],"deleted":true}'
    )
    assert "JSON of Magnetar up to 0.2.0" in text
    assert "# 2 ledgers with 10 entries and 1,000 bytes" in text
    assert "its deletion is decided" in text
    text = words(f"{LISTS}/p/s", b'{"markDelete":[5,3],"acked":{"5":{"0":"a0"}}}')
    assert "# all up to 5:3 is acknowledged, and 2 entries after it" in text


@pytest.mark.parametrize("kind", [CompressionType.NONE, CompressionType.ZLIB])
def test_apaches_records_are_shown_as_fields_also_compressed(kind: int) -> None:
    record = encode_ledger_list(ManagedLedgerInfo([LedgerInfo(5, 10, 1000, 1)]), Compression(kind, 0))
    text = words(f"{LISTS}/p", record)
    assert "Pulsar's ManagedLedgerInfo" in text
    assert "# 1 ledgers with 10 entries and 1,000 bytes" in text
    assert "ledgerId: 5" in text
    record = encode_cursor(StoredCursor(CursorInfo(Position(5, 3)), 12), Compression(kind, 0))
    text = words(f"{LISTS}/p/s", record)
    assert "# the position is the last entry of ledger 12" in text
    assert "cursorsLedgerId: 12" in text


def test_ledger_is_shown_without_its_password() -> None:
    text = words(ledger_key(5), encode(LedgerMetadata((LedgerSegment(("a:1", "b:1")),), password=b"hidden")))
    assert "ledger 5; version 3" in text
    assert "from entry 0 on: a:1, b:1" in text
    assert "password: 6 bytes" in text
    assert "hidden" not in text


def test_credentials_in_json_are_masked() -> None:
    value = (
        b'{"serviceUrl":"u","brokerClientAuthenticationParameters":"secret1","x":[{"aPassword":"secret2"}]}'
    )
    text = words("/admin/clusters/c", value)
    assert '"serviceUrl": "u"' in text
    assert "secret" not in text


def test_bytes_of_no_known_form_and_broken_values_are_shown_in_hexadecimal() -> None:
    text = words("/what/ever", b"\x00\xff" * 3000)
    assert "bytes of a form that is not known here" in text
    assert "00ff00ff 00ff00ff" in text
    assert "… and 1,904 more bytes" in text
    text = words("/admin/policies/shop", b"{broken")
    assert "the value cannot be read: Expecting property name" in text
    assert "7b62726f 6b656e" in text
    assert "text\n  one line" in words("/ledgers/INSTANCEID", b"one line")
