"""ManyReads against bytes as ZooKeeper's own classes write them."""

from __future__ import annotations

from kazoo.exceptions import NoNodeError

from foundation.zookeeper.many_reads import CHILDREN, DATA, ManyReads, NodeData

END = bytes.fromhex("ffffffff 01 ffffffff")


def test_request_has_a_header_for_each_path_and_an_end() -> None:
    written = bytes(ManyReads([(DATA, "/a"), (CHILDREN, "/bc")]).serialize())
    head = bytes.fromhex("00000004 00 ffffffff")
    assert (
        written == head + b"\0\0\0\x02/a\0" + bytes.fromhex("00000008 00 ffffffff") + b"\0\0\0\x03/bc\0" + END
    )


def test_answer_has_values_children_and_errors() -> None:
    stat = bytes(32) + (7).to_bytes(4, "big") + bytes(20) + (2).to_bytes(4, "big") + bytes(8)
    received = b"xid"
    received += bytes.fromhex("00000004 00 00000000") + b"\0\0\0\x01v" + stat
    received += bytes.fromhex("ffffffff 00 ffffff9b") + (-101).to_bytes(4, "big", signed=True)
    received += bytes.fromhex("00000008 00 00000000") + b"\0\0\0\x02" + b"\0\0\0\x01a" + b"\0\0\0\x02bc"
    # A node without a value has none, which is not an empty one on the wire.
    received += bytes.fromhex("00000004 00 00000000") + b"\xff\xff\xff\xff" + stat
    value, missing, names, empty = ManyReads([]).deserialize(received + END, 3)
    assert value == NodeData(b"v", 7, 0, 2)
    assert isinstance(missing, NoNodeError)
    assert names == ["a", "bc"]
    assert empty == NodeData(b"", 7, 0, 2)
