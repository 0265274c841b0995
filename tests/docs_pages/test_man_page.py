"""The man page has what `--help` has, as roff that a formatter accepts; packages carry it and the extras are documented."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from docs.pages.command_help import collected
from docs.pages.man_page import escaped, man_page, roff_of
from magnetar import __version__
from magnetar.__main__ import COMMANDS
from magnetar.process.shared_options import add_process_options

ROOT = Path(__file__).resolve().parents[2]


def test_every_command_and_its_parts_have_a_section() -> None:
    page = man_page()
    sections = [line for line in page.splitlines() if line.startswith(".SS")]
    for name in COMMANDS:
        assert any(f'"magnetar {name}' in line for line in sections), name
    for words in (
        "perf produce",
        "cache why",
        "config set",
        "admin snapshot",
        "bookie index rebuild",
        "token create",
    ):
        assert f'.SS "magnetar {words}"' in sections
    assert "\\fB\\-\\-until\\-eof\\fR" in page
    assert f'"magnetar {__version__}"' in page


def test_formatter_shows_names_values_and_meanings() -> None:
    parser = argparse.ArgumentParser("p", description="Do it.")
    add_process_options(parser)
    parser.add_argument("topic", help="a name")
    parser.add_argument("--hidden", help=argparse.SUPPRESS)
    parser.add_argument("-n", type=int, default=3, help="times (default %(default)s)")
    (found,) = collected("p", parser)
    assert list(roff_of(found)) == [
        '.SS "p"',
        ".PP",
        "Do it.",
        ".TP",
        "\\fItopic\\fR",
        "a name",
        ".TP",
        "\\fB\\-\\-allow\\-unknown\\-keys\\fR",
        "start in spite of keys that nothing knows, as in a file of another version",
        ".TP",
        "\\fB\\-\\-ready\\-file\\fR \\fIFILE\\fR",
        "write the addresses as JSON when ready",
        ".TP",
        "\\fB\\-\\-log\\-format\\fR \\fIauto|plain|json\\fR",
        "auto: plain on a terminal",
        ".TP",
        "\\fB\\-n\\fR \\fIN\\fR",
        "times (default 3)",
    ]


def test_text_cannot_become_a_request_of_roff() -> None:
    assert escaped(".TH x\n'a\\b-c…") == "\\&.TH x\n\\&'a\\eb\\-c..."


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_groff_formats_the_page_without_a_warning() -> None:
    words = ["groff", "-man", "-ww", "-Tutf8", str(ROOT / "docs/man/magnetar.1")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "magnetar" in done.stdout


def test_packages_carry_the_page_and_every_extra_is_documented() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["tool"]["setuptools"]["data-files"] == {"share/man/man1": ["docs/man/magnetar.1"]}
    page = (ROOT / "docs/how-to/install.md").read_text()
    extras = set(project["project"]["optional-dependencies"]) - {"dev"}
    assert {extra for extra in extras if f"| `{extra}` |" not in page} == set()


@pytest.mark.parametrize("page", ["README.md", "docs/how-to/install.md", "docs/how-to/watch.md"])
def test_pages_name_the_wheel_of_this_version(page: str) -> None:
    text = (ROOT / page).read_text()
    assert text.count("magnetar-") == text.count(f"magnetar-{__version__}-py3-none-any.whl") > 0


def test_changelog_and_release_notes_have_this_version() -> None:
    assert f"## [{__version__}] - 20" in (ROOT / "CHANGELOG.md").read_text()
    assert f"## {__version__}, 20" in (ROOT / "docs/release_notes.md").read_text()
