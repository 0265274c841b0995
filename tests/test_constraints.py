"""constraints.txt pins what pyproject.toml asks for, with hashes, in the part where `make` looks for it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PIN = re.compile(
    r"^(?P<name>[\w.-]+)(?:\[[\w,-]+\])?==(?P<version>\S+)(?P<rest>(?:.*\\\n)(?: {4}--hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)",
    re.M,
)


def pins(text: str) -> dict[str, str]:
    return {canonicalize_name(match["name"]): match["version"] for match in PIN.finditer(text)}


TEXT = (ROOT / "constraints.txt").read_text(encoding="utf-8")
RUNTIME, DIVIDER, DEVELOPMENT = TEXT.partition("\n# development\n")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = PROJECT["project"]["optional-dependencies"]
RUNTIME_WANTED = [
    *PROJECT["project"]["dependencies"],
    *EXTRAS["client"],
    *PROJECT["build-system"]["requires"],
]


@pytest.mark.parametrize("wanted", RUNTIME_WANTED)
def test_runtime_dependency_is_pinned_above_the_line(wanted: str) -> None:
    requirement = Requirement(wanted)
    assert pins(RUNTIME + "\n")[canonicalize_name(requirement.name)] in requirement.specifier


@pytest.mark.parametrize("wanted", [*EXTRAS["dev"], *EXTRAS["docs"]])
def test_development_dependency_is_pinned(wanted: str) -> None:
    requirement = Requirement(wanted)
    assert pins(TEXT)[canonicalize_name(requirement.name)] in requirement.specifier


def test_constraints_pin_every_package_with_hashes() -> None:
    assert DIVIDER
    left = PIN.sub("", TEXT)
    assert [line for line in left.splitlines() if line and not line.startswith("#")] == []
