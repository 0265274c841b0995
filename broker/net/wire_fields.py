"""Every field that a client may send, and its effect here.

The data file `wire_fields.tsv` has one line per field, tab-separated, below a line with the names of its columns:

    field    message and field, with the fields of messages inside: `CommandSubscribe.start_message_id.entryId`;
             a message alone stands for all its fields
    state    one of `STATES`
    where    of `used` and `refused`: the file of the code that reads the field
    reason   of all others: the reason of the state, in words; of `refused`: the answer

A field that gets its effect changes its line to `used` and the file. `tests/broker/net/test_wire_fields.py` finds each
field of `protocol/pulsar_api.proto` in exactly one line; `docs/reference/wire_fields.md` is made from the lines.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

STATES: Final = {
    "used": "The broker acts by it.",
    "carried": "It is for consumers. The broker passes it on unread, as Pulsar's broker does.",
    "idle": "Pulsar's broker does nothing with it either, with the settings that can be had here.",
    "refused": "The broker refuses it with the error that Pulsar has for a feature that is disabled.",
    "listed": "Pulsar's broker acts by it and this one does not.",
}
"""Meaning of each state."""


class WireField(NamedTuple):
    """A line of the file."""

    name: str
    """Message and field."""
    state: str
    """One of `STATES`."""
    where: str
    """File of the code that reads the field; empty where no code does."""
    reason: str
    """Reason of the state; empty for a field in use."""


def wire_fields() -> list[WireField]:
    """Returns the lines in the order of the file: commands by their number, then the messages' metadata."""
    text = Path(__file__).with_suffix(".tsv").read_text(encoding="utf-8")
    return [WireField(*line.split("\t")) for line in text.splitlines()[1:]]


def fields_without_effect() -> list[str]:
    """Returns the names of the fields that Pulsar acts by and this broker does not, for the log of a start."""
    return [field.name for field in wire_fields() if field.state == "listed"]
