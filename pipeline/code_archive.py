"""Packs this project's modules into one file that Spark sends to its executors.

`make dist` writes the same file for `spark-submit --py-files`. It holds Python sources and the tables beside them; the
packages that these import (`NEEDED`) must be installed where executors run.
"""

from __future__ import annotations

import hashlib
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOMS: Final = (
    "bookkeeper",
    "broker",
    "entry_cache",
    "foundation",
    "pipeline",
    "protocol",
    "pyspark_pulsar",
)
"""Packages that tasks of jobs, of the source and of the sink import."""
NEEDED: Final = ("crc32c", "cryptography", "numba", "numpy", "pandas", "protobuf", "pyarrow")
"""Packages that executors have to bring; numba for replays, cryptography for encrypted messages."""
_ROOT: Final = Path(__file__).resolve().parent.parent
_KINDS: Final = frozenset({".py", ".tsv"})
_TIME: Final = (1980, 1, 1, 0, 0, 0)


def write_code_archive(folder: Path) -> Path:
    """Writes the archive into a folder that exists, and returns its path.

    The name contains a digest of the content: Spark refuses a second file of the same name with other bytes, and Python
    remembers what it has read from an archive.
    """
    contents = [(path.relative_to(_ROOT).as_posix(), path.read_bytes()) for path in _sources()]
    digest = hashlib.sha256(b"\0".join(name.encode() + content for name, content in contents)).hexdigest()
    target = folder / f"magnetar-code-{digest[:12]}.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents:
            # One time for all, so that the same sources give the same bytes.
            archive.writestr(zipfile.ZipInfo(name, _TIME), content, zipfile.ZIP_DEFLATED)
    return target


def _sources() -> Iterator[Path]:
    for room in ROOMS:
        for path in sorted((_ROOT / room).rglob("*")):
            if path.suffix in _KINDS:
                yield path


def main(argv: list[str]) -> int:
    """Writes the archive into the folder that the first argument names."""
    folder = Path(argv[0])
    folder.mkdir(parents=True, exist_ok=True)
    made = write_code_archive(folder)
    print(f"{made.name}: {made.stat().st_size / 1024:.0f} KiB; executors need {', '.join(NEEDED)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
