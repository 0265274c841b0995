"""The histogram: three digits at every size, percentiles, and the encoding that other tools read."""

from __future__ import annotations

import base64
import random
import struct
import zlib

import pytest

from magnetar.commands.histogram import HIGHEST_US, Histogram, bucket_of, log_line, upper_end


@pytest.mark.parametrize("value", [0, 1, 1000, 2047, 2048, 2049, 4095, 4096, 123_456, 10**9, HIGHEST_US])
def test_a_bucket_holds_its_value_to_three_digits(value: int) -> None:
    end = upper_end(bucket_of(value))
    assert value <= end <= value * 1.001 + 1
    assert bucket_of(end) == bucket_of(value)
    assert bucket_of(end + 1) == bucket_of(value) + 1


def test_percentiles_of_known_values() -> None:
    histogram = Histogram()
    for value in range(1, 1001):
        histogram.record(value)
    assert [histogram.percentile_us(percent) for percent in (0, 50, 95, 99.9, 100)] == [
        1,
        500,
        950,
        999,
        1000,
    ]
    assert histogram.mean_us() == 500.5


def test_percentiles_are_close_for_any_values() -> None:
    lot = random.Random(5)
    values = sorted(int(lot.lognormvariate(8, 2)) for _ in range(5000))
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    for percent in (50, 90, 99):
        exact = values[round(len(values) * percent / 100) - 1]
        assert histogram.percentile_us(percent) == pytest.approx(exact, rel=0.01, abs=1)


def test_empty_and_out_of_range() -> None:
    histogram = Histogram()
    assert (histogram.percentile_us(99), histogram.mean_us()) == (0, 0.0)
    histogram.record(-5)
    histogram.record(HIGHEST_US * 2)
    assert (histogram.max_us, histogram.percentile_us(1)) == (HIGHEST_US, 0)


def test_adding_is_as_recording_both() -> None:
    one, other, both = Histogram(), Histogram(), Histogram()
    for value in (1, 5000, 5000):
        one.record(value)
        both.record(value)
    for value in (5000, 90_000):
        other.record(value)
        both.record(value)
    one.add(other)
    assert (one.counts, one.count, one.sum_us, one.max_us) == (both.counts, 5, both.sum_us, 90_000)


def test_log_line_decodes_by_the_published_layout() -> None:
    histogram = Histogram()
    for value in (3, 3, 3000, 70_000):
        histogram.record(value)
    start, length, greatest, encoded = log_line(histogram, 1.5, 10.0).strip().split(",")
    assert (start, length, greatest) == ("1.500", "10.000", "0.070")
    packed = base64.b64decode(encoded)
    cookie, size = struct.unpack(">ii", packed[:8])
    assert (cookie, size) == (0x1C849314, len(packed) - 8)
    plain = zlib.decompress(packed[8:])
    cookie, size, offset, digits, lowest, highest, ratio = struct.unpack(">iiiiqqd", plain[:40])
    assert (cookie, size, offset, digits) == (0x1C849313, len(plain) - 40, 0, 3)
    assert (lowest, highest, ratio) == (1, HIGHEST_US, 1.0)
    assert decode(plain[40:]) == histogram.counts


def decode(payload: bytes) -> dict[int, int]:
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
