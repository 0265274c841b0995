"""A key without effect that is set is refused, or named in the start's log and in the documentation."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from broker.config import load_broker_settings
from broker.config.keys import BROKER_KEYS
from foundation.settings.errors import SettingsError
from foundation.settings.keys import Key, format_value

ROOT: Final = Path(__file__).resolve().parents[3]
MEMORY: Final = {"PULSAR_MEM": "-XX:MaxDirectMemorySize=1000m"}
UNUSED: Final = sorted(
    {*BROKER_KEYS.unused.defaults, *(key.name for key in BROKER_KEYS.keys.values() if not key.used)}
)


def other_value(name: str) -> str | None:
    """Returns a value that is none of the key's defaults; None where every value is one of them."""
    key = BROKER_KEYS.keys.get(name)
    if key is None:
        # Keys without a row are not parsed, so any text does.
        return "7654321"
    return next((text for text in _allowed(key) if not _is_default(key, text)), None)


def _allowed(key: Key) -> list[str]:
    if key.kind == "bool":
        return ["true", "false"]
    if key.choices:
        return list(key.choices)
    if key.kind in ("int", "long", "double"):
        return [format_value(value) for value in (key.low, key.high, 7) if value is not None]
    return ["elsewhere"]


def _is_default(key: Key, text: str) -> bool:
    return key.parse(text) in (key.default, key.v40, key.v50, key.standalone, key.shipped)


def test_every_key_is_used_or_without_effect() -> None:
    used = {key.name for key in BROKER_KEYS.keys.values() if key.used}
    assert not used & set(UNUSED)
    assert {*BROKER_KEYS.keys, *BROKER_KEYS.unused.defaults} == used | set(UNUSED)


@pytest.mark.parametrize("name", UNUSED)
def test_key_without_effect_is_refused_or_named_in_the_log(name: str) -> None:
    text = other_value(name)
    if text is None:
        pytest.skip("every value of this key is a default of some release")
    try:
        settings = load_broker_settings(None, environ=MEMORY, overrides=[f"{name}={text}"])
        lines = [note.text for note in settings.notes if note.level == "warning"]
    except SettingsError as refusal:
        lines = [str(refusal)]
    assert any(name in line for line in lines)


def test_documentation_says_of_each_key_without_effect_whether_it_is_refused() -> None:
    accepted = _chapter("docs/reference/configuration.md", "### Accepted, not used")
    refused = _chapter("docs/reference/fails_closed.md", "## Broker")
    assert not set(UNUSED) - accepted - refused
    assert not set(UNUSED) & accepted & refused


def _chapter(page: str, title: str) -> set[str]:
    """Returns the words of a chapter without their punctuation."""
    text = (ROOT / page).read_text(encoding="utf-8").partition(title)[2].partition("\n## ")[0]
    return {word.strip("*,:`") for word in text.split()}
