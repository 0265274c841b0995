"""`python -m tests.crash.counting_broker`: `magnetar`, which counts the runs of more than one SEND into a file.

The file is mapped, so the count outlives SIGKILL and goes on at the next start.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
from pathlib import Path
from typing import Final

from broker.net import sends
from magnetar.__main__ import main
from protocol.pulsar_api_pb2 import CommandSend
from protocol.send_runs import Frame, following_sends
from tests.crash.broker_process import RUNS

_COUNT: Final = struct.Struct("<Q")


def counted(path: Path) -> int:
    """Returns the runs of all starts so far."""
    (runs,) = _COUNT.unpack(path.read_bytes())
    return int(runs)


def count_runs() -> None:
    """Lets this process count its runs into the file that `RUNS` names."""
    path = Path(os.environ[RUNS])
    if not path.exists():
        path.write_bytes(bytes(_COUNT.size))
    with path.open("r+b") as file:
        memory = mmap.mmap(file.fileno(), _COUNT.size)

    def counting(
        buffer: bytearray, view: memoryview, frames: list[Frame], index: int, send: CommandSend
    ) -> list[memoryview]:
        following = following_sends(buffer, view, frames, index, send)
        if following:
            (runs,) = _COUNT.unpack_from(memory)
            _COUNT.pack_into(memory, 0, runs + 1)
        return following

    vars(sends)[following_sends.__name__] = counting


if __name__ == "__main__":
    count_runs()
    sys.exit(main())
