"""Reading trace files, and error texts that name the file and its defect."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from pipeline.simulators.trace import trace_of
from pipeline.simulators.trace_files import TraceFileError, oracle_general, read_trace


def test_oracle_general_has_the_documented_bytes(tmp_path: Path) -> None:
    content = oracle_general(trace_of([2**63 + 1, 7, 2**63 + 1], [512, 3, 512]))
    assert content == (
        struct.pack("<IQIq", 0, 2**63 + 1, 512, 3)
        + struct.pack("<IQIq", 0, 7, 3, -1)
        + struct.pack("<IQIq", 0, 2**63 + 1, 512, -1)
    )
    (tmp_path / "trace.bin").write_bytes(content)
    trace = read_trace(tmp_path / "trace.bin")
    assert (trace.ids.tolist(), trace.keys.tolist(), trace.sizes.tolist()) == (
        [0, 1, 0],
        [2**63 + 1, 7],
        [512, 3],
    )


@pytest.mark.parametrize(
    ("text", "keys", "sizes"),
    [
        (
            "# time, object, size, next_access_vtime\n0, 13053225291711363978, 737, 13\n",
            [13053225291711363978],
            [737],
        ),
        ("version,time,op,size,lbn\n1,5,2a,512,42\n1,6,28,1024,43\n", [42, 43], [512, 1024]),
        ("obj_id\n9\n8\n", [9, 8], [1, 1]),
    ],
)
def test_csv_columns_are_found_by_their_names(
    tmp_path: Path, text: str, keys: list[int], sizes: list[int]
) -> None:
    (tmp_path / "trace.csv").write_text(text)
    trace = read_trace(tmp_path / "trace.csv")
    assert (trace.keys.tolist(), trace.sizes.tolist()) == (keys, sizes)


def test_txt_has_a_key_per_line(tmp_path: Path) -> None:
    (tmp_path / "trace.txt").write_text("4\n4\n18446744073709551615\n")
    assert read_trace(tmp_path / "trace.txt").keys.tolist() == [4, 2**64 - 1]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "cut.bin",
            bytes(50),
            "50 bytes are no whole number of records of 24 bytes; the file was cut off after 2",
        ),
        ("empty.bin", b"", "no request in it"),
        ("zero.bin", bytes(24), "request 0 has size 0"),
        ("empty.csv", b"object,size\n", "no request in it"),
        ("other.csv", b"a,b\n1,2\n", "no column for the object in the header 'a, b': call one 'object'"),
        ("text.csv", b"object,size\n1,2\nx,3\n", "could not convert string 'x'"),
        ("short.csv", b"object,size\n1,2\n3\n", "objects and sizes are whole numbers, one request per line"),
        ("negative.csv", b"object,size\n1,-2\n", "request 0 has size -2"),
    ],
)
def test_bad_file_is_named_with_its_defect(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TraceFileError) as error:
        read_trace(tmp_path / name)
    assert str(error.value).startswith(f"{tmp_path / name}: ")
    assert message in str(error.value)
