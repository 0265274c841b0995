"""Installs wheel and source archive of a folder in empty environments and uses them: commands, a broker, a message.

`python .ci/try_dist.py dist` needs the package registry for the dependencies. Every Python from 3.11 to 3.13 on this
machine gets an environment of its own; those that are missing are named.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

VERSIONS = ("3.11", "3.12", "3.13")
PROGRAM = """
import magnetar, pulsar
with magnetar.Broker() as broker:
    client = pulsar.Client(broker.pulsar_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    consumer = client.subscribe("t", "s")
    client.create_producer("t").send(b"from an installed wheel")
    print(consumer.receive(60_000).data().decode())
    client.close()
"""
TEST = """
def test_fixture_is_found(pulsar_url):
    assert pulsar_url.startswith("pulsar://")
"""


def pythons() -> list[tuple[str, str | None]]:
    """The versions with the interpreter of each, None where there is none."""
    mine = f"{sys.version_info.major}.{sys.version_info.minor}"
    return [(version, sys.executable if version == mine else found(version)) for version in VERSIONS]


def found(version: str) -> str | None:
    """The interpreter of this version, on the path or of pyenv; None where none starts."""
    installed = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    # A name on the path may be a version manager's placeholder, which does not start.
    for path in (shutil.which(f"python{version}"), *map(str, installed)):
        if (
            path is not None
            and not subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode
        ):
            return path
    return None


def try_wheel(wheel: Path, python: str, folder: Path) -> None:
    """Raises CalledProcessError at the first step that fails."""
    run([python, "-m", "venv", "env"], folder)
    bin_folder = folder / "env" / "bin"
    pip = [str(bin_folder / "python"), "-m", "pip", "--disable-pip-version-check", "install", "-q"]
    run([*pip, f"{wheel}[client]", "pytest"], folder)
    run([str(bin_folder / "magnetar"), "--help"], folder)
    run([str(bin_folder / "magnetar"), "version"], folder)
    if not (folder / "env" / "share" / "man" / "man1" / "magnetar.1").exists():
        raise SystemExit("the wheel has no man page")
    (folder / "test_fixture.py").write_text(TEST)
    for words in (["-c", PROGRAM], ["-m", "pytest", "-q", "test_fixture.py"]):
        run([str(bin_folder / "python"), "-I" if words[0] == "-c" else "-P", *words], folder)


def try_source(source: Path, folder: Path) -> None:
    """Builds and installs the source archive. Raises CalledProcessError at the first step that fails."""
    run([sys.executable, "-m", "venv", "env"], folder)
    bin_folder = folder / "env" / "bin"
    run(
        [
            str(bin_folder / "python"),
            "-m",
            "pip",
            "--disable-pip-version-check",
            "install",
            "-q",
            str(source),
        ],
        folder,
    )
    run([str(bin_folder / "python"), "-I", "-c", "import magnetar\nwith magnetar.Broker(): pass"], folder)


def run(command: list[str], folder: Path) -> None:
    """Runs a step in the folder; its output is shown only where it fails."""
    # Of a checkout on the path pip would say that it is installed already, and install nothing.
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
        done.check_returncode()


def main(argv: list[str]) -> int:
    """Tries the only wheel and the only source archive of the folder."""
    (wheel,) = Path(argv[0]).absolute().glob("*.whl")
    (source,) = Path(argv[0]).absolute().glob("*.tar.gz")
    for made in (wheel, source):
        print(f"{made.name}: {made.stat().st_size / 1024:.0f} KiB")
    for version, python in pythons():
        if python is None:
            print(f"Python {version}: not on this machine, not tried")
            continue
        with tempfile.TemporaryDirectory() as folder:
            try_wheel(wheel, python, Path(folder))
        print(f"Python {version}: the wheel installs; commands, broker, message and pytest plugin work")
    with tempfile.TemporaryDirectory() as folder:
        try_source(source, Path(folder))
    print("the source archive installs, and a broker starts")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
