"""`python -m tests.deletion --topics 10000`: one line per kind of topic, exit code 1 where anything is left."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests.deletion.compare import compare
from tests.deletion.kinds import KINDS


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m tests.deletion", description=(__doc__ or "").split(":")[0])
    parser.add_argument("--topics", type=int, default=10_000, metavar="N", help="of each kind")
    parser.add_argument("--kind", choices=KINDS, action="append", help="only this one; may be repeated")
    arguments = parser.parse_args(argv)
    left = 0
    for kind in arguments.kind or KINDS:
        with tempfile.TemporaryDirectory(prefix="magnetar-deletion-") as folder:
            found = asyncio.run(compare(kind, arguments.topics, Path(folder) / "metadata"))
        left += len(found.differences)
        print(
            f"{kind:15} {arguments.topics:6,} topics, keys {found.keys_before} -> {found.keys_between:,} -> "
            f"{found.keys_after}, {found.seconds:.1f} s: {found.differences[:5] or 'as before'}",
            flush=True,
        )
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
