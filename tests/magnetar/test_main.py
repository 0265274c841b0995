"""The command line: which command runs, which modules `--help` may import, and exit codes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from magnetar import __main__ as entrance
from magnetar import __version__

ROOT = Path(__file__).resolve().parents[2]
HELP_MODULES_MAX = 40
"""Of the standard library and ours, for the usage; about 20 ms with the start of Python."""
HEAVY = (
    "http.client",
    "uvloop",
    "google.protobuf",
    "aiohttp",
    "pulsar",
    "_pulsar",
    "rocksdict",
    "prometheus_client",
)


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "magnetar", *words], cwd=ROOT, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("name", sorted(entrance.COMMANDS))
def test_every_command_has_a_function(name: str) -> None:
    assert callable(entrance.load(name))


@pytest.mark.parametrize(
    "words",
    [
        [],
        *([name] for name in sorted(entrance.COMMANDS)),
        ["perf", "produce"],
        ["perf", "consume"],
        ["config", "set"],
        ["cache", "why"],
        ["subscription", "why"],
        ["subscription", "evictions"],
    ],
)
def test_help_imports_nothing_heavy(words: list[str]) -> None:
    code = (
        "import sys\nfrom magnetar.__main__ import main\n"
        f"try:\n    status = main({[*words, '--help']!r})\nexcept SystemExit as stopped:\n    status = stopped.code\n"
        f"heavy = [name for name in {HEAVY!r} if name in sys.modules]\n"
        "sys.exit(f'imported {heavy}' if heavy else status)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "usage" in done.stdout.lower()


def test_usage_is_printed_with_status_2_without_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert entrance.main([]) == 2
    assert "standalone" in capsys.readouterr().out


def test_usage_separates_each_name_from_its_text() -> None:
    for name, (_, text) in entrance.COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(text)}$", entrance.usage(), re.MULTILINE)


def test_image_without_the_jobs_says_so_in_one_line() -> None:
    code = (
        "import sys\nsys.modules['pipeline'] = None\nfrom magnetar.__main__ import main\n"
        "sys.exit(main(['pipeline', 'hit-report', 'x']))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith("magnetar pipeline: the package pipeline is missing")
    assert done.stderr.count("\n") == 1


def test_unknown_command_is_named_with_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert entrance.main(["standalon"]) == 2
    assert "'standalon'" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["version", "--version", "-V"])
def test_version_is_printed_for_each_spelling(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert entrance.main([word]) == 0
    assert capsys.readouterr().out == f"magnetar {__version__}\n"


def test_version_verbose_names_libraries(capsys: pytest.CaptureFixture[str]) -> None:
    assert entrance.main(["version", "--verbose"]) == 0
    assert "protobuf" in capsys.readouterr().out


def test_closed_pipe_leaves_no_traceback() -> None:
    shown = subprocess.run(
        f"{sys.executable} -m magnetar version --verbose | true",
        shell=True,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert "Traceback" not in shown.stderr


def test_help_imports_few_modules() -> None:
    """Beyond those of Python itself; the start of a command costs what it imports."""
    code = (
        "import sys\nbefore = set(sys.modules)\nfrom magnetar.__main__ import main\nmain(['--help'])\n"
        "sys.exit(' '.join(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{code}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    imported = done.stderr.split()
    assert {name.partition(".")[0] for name in imported} & {"magnetar"} == {"magnetar"}
    assert [name for name in imported if name.startswith("magnetar")] == ["magnetar", "magnetar.__main__"]
    assert len(imported) <= HELP_MODULES_MAX, imported


@pytest.mark.parametrize("name", ["standalone", "broker"])
def test_help_of_a_broker_does_not_import_logging(name: str) -> None:
    """Logging costs such a `--help` a tenth of its CPU."""
    code = (
        "import sys\nfrom magnetar.__main__ import main\n"
        f"try:\n    main([{name!r}, '--help'])\nexcept SystemExit:\n    sys.exit('logging' in sys.modules)"
    )
    # Isolated: a package of the environment may import it at the start of Python.
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{code}"],
        cwd=ROOT,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0
