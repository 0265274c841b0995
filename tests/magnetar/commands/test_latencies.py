"""Latencies: three digits at every size, percentiles, and the encoding that HdrHistogram's tools read."""

from __future__ import annotations

import base64
import random
import struct
import sys
import zlib

import pytest

from magnetar.clients.client import CommandError
from magnetar.commands.latencies import HIGHEST_US, Latencies


def latencies(*values: int) -> Latencies:
    found = Latencies()
    for value in values:
        found.record(value)
    return found


@pytest.mark.parametrize("value", [0, 1, 1000, 2047, 2048, 2049, 4095, 4096, 123_456, 10**9, HIGHEST_US])
def test_percentile_is_the_value_to_three_digits(value: int) -> None:
    (found,) = latencies(value, HIGHEST_US).percentiles_us([50])
    assert value <= found <= value * 1.001 + 1


def test_percentiles_are_exact_when_values_are_small() -> None:
    found = latencies(*range(1, 1001))
    assert found.percentiles_us((0, 50, 95, 99.9, 100)) == [1, 500, 950, 999, 1000]
    assert found.mean_us() == 500.5


def test_percentiles_are_close_for_random_values() -> None:
    lot = random.Random(5)
    values = sorted(int(lot.lognormvariate(8, 2)) for _ in range(5000))
    percents = (50, 90, 99)
    for percent, found in zip(percents, latencies(*values).percentiles_us(percents), strict=True):
        exact = values[round(len(values) * percent / 100) - 1]
        assert found == pytest.approx(exact, rel=0.01, abs=1)


def test_percentiles_and_mean_are_zero_without_values() -> None:
    assert (latencies().percentiles_us([99]), latencies().mean_us()) == ([0], 0.0)


def test_values_out_of_range_count_as_the_nearest() -> None:
    found = latencies(-5, HIGHEST_US * 2)
    assert (found.count, found.max_us, found.percentiles_us([1])) == (2, HIGHEST_US, [0])


def test_add_counts_the_values_of_both() -> None:
    one, both = latencies(1, 5000, 5000), latencies(1, 5000, 5000, 5000, 90_000)
    one.add(latencies(5000, 90_000))
    assert one.log_line(0, 0) == both.log_line(0, 0)
    assert (one.count, one.mean_us(), one.max_us) == (5, both.mean_us(), 90_000)


def test_log_line_decodes_by_the_published_layout() -> None:
    line = latencies(3, 3, 3000, 70_000).log_line(1.5, 10.0)
    start, length, greatest, encoded = line.strip().split(",")
    assert (start, length, greatest) == ("1.500", "10.000", "0.070")
    packed = base64.b64decode(encoded)
    cookie, size = struct.unpack(">ii", packed[:8])
    assert (cookie, size) == (0x1C849314, len(packed) - 8)
    plain = zlib.decompress(packed[8:])
    cookie, size, offset, digits, lowest, highest, ratio = struct.unpack(">iiiiqqd", plain[:40])
    assert (cookie, size, offset, digits) == (0x1C849313, len(plain) - 40, 0, 3)
    assert (lowest, highest, ratio) == (1, HIGHEST_US, 1.0)
    assert decode(plain[40:]) == {3: 2, 2524: 1, 7237: 1}


def test_log_line_is_as_recorded() -> None:
    """Made by the encoder of our own that the package replaced."""
    assert latencies(3, 3, 3000, 70_000).log_line(1.5, 10.0) == (
        "1.500,10.000,0.070,HISTFAAAACl4nJNpmSzMwMDAwQABzFCaEYilP/RtYLD/ABFgZVmvznTekwkAgzwGxg==\n"
    )


def decode(payload: bytes) -> dict[int, int]:
    """Counts by bucket."""
    counts, index, at = {}, 0, 0
    while at < len(payload):
        value = shift = 0
        while True:
            byte = payload[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        number = (value >> 1) ^ -(value & 1)
        if number < 0:
            index -= number
        else:
            counts[index] = number
            index += 1
    return counts


def test_missing_package_is_named_with_the_way_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hdrh.histogram", None)
    with pytest.raises(CommandError, match=r"pip install WHEEL\[client\]"):
        Latencies()
