"""Makes `docs/man/magnetar.1`, the man page, from the table of commands and their parsers; `generate.py` writes it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from docs.pages.command_help import Argument, CommandHelp, help_of
from magnetar import __version__
from magnetar.__main__ import COMMANDS

HEAD: Final = f"""\
.\\" Written by `make generate` from the parsers of the commands.
.TH MAGNETAR 1 "" "magnetar {__version__}" "User Commands"
.SH NAME
magnetar \\- a Pulsar broker with its bookie, and clients for any Pulsar
.SH SYNOPSIS
.B magnetar
.I COMMAND
.RI [ OPTION ...]
.SH DESCRIPTION
Official Pulsar clients connect to the broker unmodified.
Settings are Pulsar's keys of
.IR broker.conf ;
.B magnetar config show \\-\\-origin
prints what holds and where it comes from.
"""
TAIL: Final = """\
.SH EXIT STATUS
.TP
.B 0
Done.
.TP
.B 1
Failed; one line on standard error says why.
.TP
.B 2
Wrong usage, or a setting that is not accepted.
.TP
.B 130
Interrupted.
.SH ENVIRONMENT
.TP
.I KEY\\fR, \\fIPULSAR_PREFIX_KEY
Override a key of the configuration file.
.TP
.B PULSAR_MEM
\\-XX:MaxDirectMemorySize in it is the size that defaults are shares of.
.TP
.B PULSAR_LOG_LEVEL
trace, debug, info (the default), warn, error or off.
.SH SEE ALSO
The documentation in the folder
.I docs
of the project.
"""


def man_page() -> str:
    """Returns the page."""
    lines = [HEAD + ".SH COMMANDS"]
    for name, (_, text) in COMMANDS.items():
        lines += [".TP", f"\\fBmagnetar {escaped(name)}\\fR", escaped(text)]
    lines.append(".SH OPTIONS")
    for name in COMMANDS:
        for found in help_of(name):
            lines += roff_of(found)
    return "\n".join(lines) + "\n" + TAIL


def roff_of(found: CommandHelp) -> Iterator[str]:
    """Yields the lines of one command."""
    yield f'.SS "{escaped(found.title)}"'
    if found.text:
        yield from (".nf", escaped(found.text), ".fi")
    for part in found.parts:
        if isinstance(part, str):
            yield from (".PP", escaped(part))
        else:
            yield from (".TP", _names(part), escaped(part.meaning) if part.meaning else "\\&")


def _names(argument: Argument) -> str:
    value = f"\\fI{escaped(argument.value)}\\fR" if argument.value else ""
    flags = ", ".join(f"\\fB{escaped(name)}\\fR" for name in argument.flags)
    return " ".join(filter(None, (flags, value)))


def escaped(text: str) -> str:
    """Returns text that roff shows as it is: backslashes, hyphens, and lines that begin like a request."""
    plain = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", plain, flags=re.M).replace("…", "...")
