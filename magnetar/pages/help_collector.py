"""HelpCollector: takes the place of the formatter of `--help`, and collects what it would show.

argparse calls it as it calls its own formatter, so each page has the words of `--help`, and is the same under every release
of Python.
"""

from __future__ import annotations

import argparse
from abc import abstractmethod
from collections.abc import Iterable, Mapping


class HelpCollector(argparse.HelpFormatter):
    """Receives the descriptions and arguments of one parser; a page makes its own form of them."""

    def __init__(self, prog: str) -> None:
        """`prog` names the command."""
        super().__init__(prog)
        self.subparsers: dict[str, argparse.ArgumentParser] = {}
        """The parsers of the actions below this one, by name."""

    @abstractmethod
    def add_paragraph(self, text: str) -> None:
        """Takes a description."""

    @abstractmethod
    def add_row(self, action: argparse.Action, meaning: str) -> None:
        """Takes one option or positional argument; `meaning` is empty where the parser gives none."""

    def start_section(self, heading: str | None) -> None:
        """Groups are not shown: an option says enough of itself."""

    def end_section(self) -> None:
        """Closes nothing."""

    def add_text(self, text: str | None) -> None:
        """Adds a description."""
        if text:
            self.add_paragraph(text % {"prog": self._prog})

    def add_usage(
        self,
        usage: str | None,
        actions: Iterable[argparse.Action],
        groups: Iterable[object],
        prefix: str | None = None,
    ) -> None:
        """Adds nothing: the rows repeat it."""

    def add_argument(self, action: argparse.Action) -> None:
        """Adds one option or positional argument; the option of the help itself is left out."""
        if action.help == argparse.SUPPRESS or action.dest == "help":
            return
        choices = action.choices if isinstance(action.choices, Mapping) else {}
        parsers = {name: one for name, one in choices.items() if isinstance(one, argparse.ArgumentParser)}
        if parsers:
            self.subparsers.update(parsers)
            return
        self.add_row(action, self._expand_help(action) if action.help else "")
