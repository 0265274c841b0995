"""Makes `docs/reference/wire_fields.md` from the table of wire fields; `generate.py` writes it."""

from __future__ import annotations

from broker.net.wire_fields import STATES, WireField, wire_fields

INTRODUCTION = """\
# Fields of client commands

Written by `make generate` from `broker/net/wire_fields.tsv`. `tests/broker/net/test_wire_fields.py` finds each field of
every command that a client may send, and of the messages' metadata, in exactly one line of it.

A command that is for clients alone ends the connection. The start's log names the fields that are listed under
[Without effect](#without-effect).
"""

TITLES = {
    "listed": "Without effect",
    "refused": "Refused",
    "idle": "Without effect in Pulsar too",
    "carried": "Carried",
    "used": "Used",
}
"""Title of each state's chapter, in the order of the page."""


def wire_fields_page() -> str:
    """Returns the page with every field, by state."""
    fields = wire_fields()
    chapters = [_chapter(state, [field for field in fields if field.state == state]) for state in TITLES]
    return "\n".join([INTRODUCTION, *chapters])


def _chapter(state: str, fields: list[WireField]) -> str:
    column = "read in" if state == "used" else "reason"
    lines = [
        f"## {TITLES[state]}\n",
        f"{STATES[state]}\n",
        f"| field | {column} |\n|---|---|",
        *(
            f"| `{field.name}` | {f'`{field.where}`' if state == 'used' else field.reason} |"
            for field in fields
        ),
    ]
    return "\n".join([*lines, ""])
