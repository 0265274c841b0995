"""ReceiveBufferSizer: rises at once, falls after two small reads, stays within its limits."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies

from protocol.receive_buffer_sizer import SIZES, ReceiveBufferSizer


def test_full_read_raises_the_guess_by_four_classes() -> None:
    sizer = ReceiveBufferSizer()
    assert sizer.guess == 16384
    sizer.record(16384)
    assert sizer.guess == 262144


def test_two_small_reads_lower_the_guess_by_one_class() -> None:
    sizer = ReceiveBufferSizer()
    guesses = []
    for _ in range(4):
        sizer.record(100)
        guesses.append(sizer.guess)
    assert guesses == [16384, 8192, 8192, 4096]


@given(strategies.lists(strategies.integers(0, 2 << 20), max_size=50))
def test_guess_stays_within_its_limits(received: list[int]) -> None:
    sizer = ReceiveBufferSizer(1024, 16384, 1048576)
    for count in received:
        sizer.record(min(count, sizer.guess))
        assert 1024 <= sizer.guess <= 1048576
        assert sizer.guess in SIZES


@given(strategies.lists(strategies.integers(0, 2 << 20), max_size=50))
def test_reads_between_small_and_the_guess_need_no_record(received: list[int]) -> None:
    sizer, told = ReceiveBufferSizer(512, 2048, 65536), ReceiveBufferSizer(512, 2048, 65536)
    for read in received:
        count = min(read, sizer.guess)
        told.read(count, told.guess)
        told.loop_ended()
        if count >= sizer.guess or count <= sizer.small:
            sizer.record(count)
        assert sizer.guess == told.guess


@pytest.mark.parametrize("limits", [(0, 16, 32), (32, 16, 64), (16, 64, 32), (1, 8, 15)])
def test_sizer_refuses_limits_out_of_order(limits: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="receive buffer"):
        ReceiveBufferSizer(*limits)
