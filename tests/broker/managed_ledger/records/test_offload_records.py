"""The place of a copy in the list of ledgers, in the words of Apache's offloader."""

from __future__ import annotations

from uuid import UUID

import pytest

from broker.managed_ledger.ledger_list import OffloadContext, OffloadPlace
from broker.managed_ledger.records.offload_records import decode_context, encode_context

UUID_1 = UUID("f1111111-2222-3333-f444-555555555555")


@pytest.mark.parametrize(("driver", "spelling"), [("S3", "S3"), ("aws-s3", "AWS_S3")])
def test_place_is_stored_in_the_words_of_apache(driver: str, spelling: str) -> None:
    """As a broker of Apache 4.2.4 with the offloader of 4.0.8 writes and reads them."""
    context = OffloadContext(UUID_1, OffloadPlace(driver, "b", "r", "http://h:1"), complete=True, at_ms=5)
    record = encode_context(context)
    assert record.driverMetadata.name == driver
    assert {one.key: one.value for one in record.driverMetadata.properties} == {
        "managedLedgerOffloadDriver": spelling,
        "bucket": "b",
        "region": "r",
        "serviceEndpoint": "http://h:1",
    }
    assert decode_context(record) == context
