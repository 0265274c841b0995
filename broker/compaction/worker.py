"""The worker process: runs the passes of one compaction for the broker that started it.

Frames come in at the standard input and answers leave at the standard output. The end of the input ends the process, so
a worker never outlives its broker, however that ended.
"""

from __future__ import annotations

import sys
from typing import BinaryIO

from broker.compaction.frames import (
    HEAD,
    FrameKind,
    decode_entries,
    decode_settings,
    encode_entries,
    encode_result,
    frame,
)
from broker.compaction.passes import Passes


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Answers frames until the source ends."""
    passes: Passes | None = None
    while (head := source.read(HEAD.size)) and len(head) == HEAD.size:
        kind, length = HEAD.unpack(head)
        content = source.read(length)
        if len(content) < length:
            return
        if kind == FrameKind.SETTINGS:
            passes = Passes(decode_settings(content))
            continue
        assert passes is not None, "SETTINGS come first"
        if kind == FrameKind.ENTRIES:
            passes.add([body for _, body in decode_entries(content)])
            continue
        sink.write(_answer(passes, kind, content))
        sink.flush()


def _answer(passes: Passes, kind: int, content: bytes) -> bytes:
    if kind == FrameKind.END_ROUND:
        result = passes.end_round()
        return frame(FrameKind.AGAIN) if result is None else frame(FrameKind.RESULT, encode_result(result))
    assert kind == FrameKind.REWRITE, f"unknown frame {kind}"
    entries = decode_entries(content)
    rewritten = passes.rewrite(entries)
    numbers = [number for number, _ in entries]
    return frame(FrameKind.ENTRIES, encode_entries(list(zip(numbers, rewritten, strict=True))))


def main() -> None:
    """Serves the standard input."""
    serve(sys.stdin.buffer, sys.stdout.buffer)


if __name__ == "__main__":
    main()
