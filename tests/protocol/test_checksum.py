"""The checksum CRC-32C of records and frames."""

from __future__ import annotations

import sys

import pytest

from protocol import checksum


def test_crc32c_is_that_of_the_standard() -> None:
    assert checksum.crc32c(b"123456789") == 0xE3069283
    assert checksum.crc32c(b"56789", checksum.crc32c(b"1234")) == 0xE3069283


def test_crc32c_comes_from_the_package_when_its_extension_module_is_not_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import crc32c

    monkeypatch.setattr("importlib.machinery.PathFinder.find_spec", lambda *_: None)
    assert checksum._load() is sys.modules["crc32c"] is crc32c
