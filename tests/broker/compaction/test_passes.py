"""Both passes, on tables of cases and against a plain model."""

from __future__ import annotations

import io
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.compaction.entry_content import read_entry
from broker.compaction.frames import (
    HEAD,
    FrameKind,
    decode_entries,
    decode_result,
    encode_entries,
    encode_settings,
    frame,
)
from broker.compaction.latest_messages import DROP, KEEP, REWRITE
from broker.compaction.passes import Passes, PassesSettings, PassOneResult
from broker.compaction.worker import serve
from protocol.pulsar_api_pb2 import CompressionType
from protocol.sent_body import Judgement, judge_body
from tests.fakes.batches import Item, batch, items_of, single

RULES = PassesSettings(retain_null_key=False, memory_bytes=1 << 30)


def pass_one(passes: Passes, bodies: list[bytes]) -> PassOneResult:
    while True:
        passes.add(bodies)
        if (result := passes.end_round()) is not None:
            return result


def fates(bodies: list[bytes], *, retain: bool = False) -> list[int]:
    rules = PassesSettings(retain_null_key=retain, memory_bytes=1 << 30)
    return list(pass_one(Passes(rules), bodies).fates)


CASES = {
    "latest message of a key": (
        [single("a", b"1"), single("b", b"2"), single("a", b"3")],
        [DROP, KEEP, KEEP],
    ),
    "empty payload deletes the key": ([single("a", b"1"), single("a", b"")], [DROP, DROP]),
    "empty payload without a size": ([single("a", b"1"), single("a", b"", size=None)], [DROP, DROP]),
    "payload after a deletion": (
        [single("a", b"1"), single("a", b""), single("a", b"2")],
        [DROP, DROP, KEEP],
    ),
    "compressed empty payload has bytes": ([single("a", b"1"), single("a", b"\0", size=0)], [DROP, DROP]),
    "no key": ([single(None, b"1"), single("a", b"2")], [DROP, KEEP]),
    "empty key is a key": ([single("", b"1"), single("", b"2")], [DROP, KEEP]),
    "marker": ([single("a", b"1"), single("a", b"2", marker=10)], [KEEP, DROP]),
    "encrypted single message by its key": (
        [single("a", b"1", encrypted=True), single("a", b"2", encrypted=True)],
        [DROP, KEEP],
    ),
    "batch": (
        [batch([("a", b"1"), ("b", b"2")]), batch([("c", b"3")]), batch([("a", b"4"), ("c", b"")])],
        [REWRITE, DROP, REWRITE],
    ),
    "batch that stays whole": ([batch([("a", b"1"), ("b", b"2")])], [KEEP]),
    "key twice in a batch": ([batch([("a", b"1"), ("a", b"2")])], [REWRITE]),
    "batch against single message": ([batch([("a", b"1")]), single("a", b"2")], [DROP, KEEP]),
    "messages removed before do not count": ([batch([("a", b""), ("b", b"2")], removed=[0])], [KEEP]),
    "all removed before": ([batch([("a", b"")], removed=[0])], [DROP]),
    "encrypted batch": ([batch([("a", b"1")], encrypted=True), single("a", b"2")], [KEEP, KEEP]),
    "encrypted batch with a key": (
        [batch([("a", b"1")], encrypted=True, key="a"), batch([("a", b"1")], encrypted=True, key="a")],
        [KEEP, KEEP],
    ),
    "damaged batch": ([batch([("a", b"1")], plain=b"\0\0\0\5\x12\x01"), single("a", b"2")], [KEEP, KEEP]),
    "payload longer than its batch": ([batch([("a", b"1")], plain=b"\0\0\0\2\x18\x7f")], [KEEP]),
    "batch of unreadable bytes": ([batch([("a", b"1")], plain=b"no batch at all")], [KEEP]),
    "no message at all": ([b"", b"\x0e\x01", b"xyz"], [KEEP, KEEP, KEEP]),
    "chunks": (
        [
            single("a", b"1", chunk=("u", 0, 2)),
            single("a", b"2", chunk=("u", 1, 2)),
            single("a", b"3", chunk=("v", 0, 2)),
            single("a", b"4", chunk=("v", 1, 2)),
        ],
        [DROP, DROP, KEEP, KEEP],
    ),
    "chunks of two messages mixed": (
        [
            single("a", b"1", chunk=("u", 0, 2)),
            single("b", b"2", chunk=("v", 0, 2)),
            single("a", b"3", chunk=("u", 1, 2)),
            single("b", b"4", chunk=("v", 1, 2)),
            single("b", b"5"),
        ],
        [KEEP, DROP, KEEP, DROP, KEEP],
    ),
    "chunks whose rest is still to come": (
        [single("a", b"1"), single("a", b"2", chunk=("u", 0, 3)), single("a", b"3", chunk=("u", 1, 3))],
        [KEEP, KEEP, KEEP],
    ),
    "chunks that a later message overtook": (
        [single("a", b"1", chunk=("u", 0, 3)), single("a", b"2")],
        [DROP, KEEP],
    ),
    "chunks without a key": (
        [single(None, b"1", chunk=("u", 0, 2)), single(None, b"2", chunk=("u", 1, 2))],
        [DROP, DROP],
    ),
    "nothing": ([], []),
}


@pytest.mark.parametrize("case", CASES)
def test_pass_one_decides(case: str) -> None:
    bodies, expected = CASES[case]
    assert fates(bodies) == expected


def test_messages_without_a_key_are_kept_on_request() -> None:
    bodies = [single(None, b"1"), batch([(None, b"2"), ("a", b"3")]), single("a", b"4"), single(None, b"")]
    assert fates(bodies, retain=True) == [KEEP, REWRITE, KEEP, KEEP]


@pytest.mark.parametrize("compression", CompressionType.values())
def test_rewritten_batch_keeps_indexes_of_its_messages(compression: int) -> None:
    body = batch([("a", b"1" * 50), ("b", b"2"), (None, b"3"), ("a", b"4")], compression=compression)
    passes = Passes(RULES)
    assert list(pass_one(passes, [body]).fates) == [REWRITE]
    (rewritten,) = passes.rewrite([(0, body)])
    assert items_of(rewritten) == [(1, "b", b"2"), (3, "a", b"4")]
    metadata, _ = read_entry(rewritten)
    assert (metadata.num_messages_in_batch, list(metadata.compacted_batch_indexes)) == (4, [1, 3])
    assert metadata.compression == compression
    assert judge_body(bytearray(rewritten), 0, memoryview(rewritten)) == Judgement.PLAIN


def test_batch_can_be_rewritten_again() -> None:
    body = batch([("a", b"1"), ("b", b"2"), ("a", b"3")])
    first = Passes(RULES)
    pass_one(first, [body])
    (once,) = first.rewrite([(0, body)])
    second = Passes(RULES)
    assert list(pass_one(second, [once, single("b", b"4")]).fates) == [REWRITE, KEEP]
    (twice,) = second.rewrite([(0, once)])
    assert items_of(twice) == [(2, "a", b"3")]
    assert list(read_entry(twice)[0].compacted_batch_indexes) == [2]


ITEM = st.tuples(st.sampled_from(["a", "b", "c", "d", "e", None]), st.sampled_from([b"", b"v", b"w" * 9]))
ENTRY = st.one_of(ITEM, st.lists(ITEM, min_size=1, max_size=5))


@given(st.lists(ENTRY, max_size=30), st.booleans())
def test_passes_agree_with_a_dictionary(entries: list[Item | list[Item]], retain: bool) -> None:
    bodies = [batch(one) if isinstance(one, list) else single(*one) for one in entries]
    flat = [
        (number, item)
        for number, one in enumerate(entries)
        for item in (one if isinstance(one, list) else [one])
    ]
    latest: dict[str, int] = {}
    for place, (_, (key, payload)) in enumerate(flat):
        if key is not None:
            latest[key] = place
            if not payload:
                del latest[key]
    expected = [
        (number, key, payload)
        for place, (number, (key, payload)) in enumerate(flat)
        if (retain if key is None else latest.get(key) == place)
    ]
    passes = Passes(PassesSettings(retain, 1 << 20))
    result = pass_one(passes, bodies)
    found: list[tuple[int, str | bytes | None, bytes]] = []
    for number, (one, fate) in enumerate(zip(entries, result.fates, strict=True)):
        if fate == DROP:
            continue
        if not isinstance(one, list):
            found.append((number, *one))
            continue
        body = passes.rewrite([(number, bodies[number])])[0] if fate == REWRITE else bodies[number]
        found += [(number, one[index][0], payload) for index, _, payload in items_of(body)]
    assert found == expected
    assert (result.messages, result.kept) == (len(flat), len(expected))


def test_keys_beyond_the_memory_take_more_rounds() -> None:
    keys = [f"key-{number % 3000}" for number in range(9000)]
    random.Random(5).shuffle(keys)
    bodies = [single(key, b"v") for key in keys]
    passes, rounds = Passes(PassesSettings(False, 200_000)), 0
    result = None
    while result is None:
        passes.add(bodies)
        result = passes.end_round()
        rounds += 1
    assert rounds > 2
    assert result.kept == 3000
    last = {key: number for number, key in enumerate(keys)}
    assert [number for number, fate in enumerate(result.fates) if fate == KEEP] == sorted(last.values())


def test_worker_answers_frames_until_its_input_ends() -> None:
    bodies = [batch([("a", b"1"), ("b", b"2")]), single("a", b"3")]
    numbered = list(enumerate(bodies))
    source = io.BytesIO(
        frame(FrameKind.SETTINGS, encode_settings(RULES))
        + frame(FrameKind.ENTRIES, encode_entries(numbered[:1]))
        + frame(FrameKind.ENTRIES, encode_entries(numbered[1:]))
        + frame(FrameKind.END_ROUND)
        + frame(FrameKind.REWRITE, encode_entries(numbered[:1]))
        + b"\x02"
    )
    sink = io.BytesIO()
    serve(source, sink)
    answers = sink.getvalue()
    kind, size = HEAD.unpack_from(answers)
    content = answers[HEAD.size : HEAD.size + size]
    assert (kind, decode_result(content)) == (FrameKind.RESULT, PassOneResult(bytes([REWRITE, KEEP]), 3, 2))
    rest = answers[HEAD.size + size :]
    kind, size = HEAD.unpack_from(rest)
    ((number, body),) = decode_entries(rest[HEAD.size :])
    assert (kind, number, items_of(body)) == (FrameKind.ENTRIES, 0, [(1, "b", b"2")])
