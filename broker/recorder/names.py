"""Names: the ids of topics and subscriptions in one run's record, and the file that says what they are called.

The file gets a line for each id before any row with it is written, so that it can be read after a crash. Ids begin
at 1; 0 is nothing. A topic that is opened anew keeps its id, and so does a subscription, by its name.
"""

from __future__ import annotations

import json
from pathlib import Path


class _Topics(dict[str, int]):
    """Ids by name; asking for a new one makes it."""

    def __init__(self, names: NamesWriter) -> None:
        super().__init__({"": 0})
        self._names = names

    def __missing__(self, log: str) -> int:
        self[log] = topic = len(self)
        self._names.say({"topic": topic, "name": log})
        return topic


class NamesWriter:
    __slots__ = ("_known", "_moved", "_path", "_unwritten", "topics")

    def __init__(self, path: Path) -> None:
        self._path = path
        self._unwritten = ""
        self.topics = _Topics(self)
        self._known: dict[str, dict[str, int]] = {}
        """By topic: subscription ids by name."""
        self._moved: dict[str, dict[int, int]] = {}
        """By topic: the id of a reader, where that is not its number because an earlier one has it."""

    def say(self, line: dict[str, object]) -> None:
        self._unwritten += json.dumps(line, ensure_ascii=False) + "\n"

    def reader_made(self, log: str, number: int, name: str) -> None:
        """The topic's reader of that number has that name until the topic is closed."""
        known = self._known.setdefault(log, {})
        sub = known.get(name)
        if sub is None:
            taken = known.values()
            sub = known[name] = number if number not in taken else max(taken) + 1
            self.say({"topic": self.topics[log], "sub": sub, "name": name})
        if sub != number:
            self._moved.setdefault(log, {})[number] = sub

    def closed(self, log: str) -> None:
        self._moved.pop(log, None)

    @property
    def numbers_are_ids(self) -> bool:
        """Of all topics that are open: the usual case."""
        return not self._moved

    def sub(self, log: str, number: int) -> int:
        moved = self._moved.get(log)
        return number if moved is None else moved.get(number, number)

    def flush(self) -> None:
        """Raises OSError; what could not be written is tried again with the next call."""
        if self._unwritten:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            text, self._unwritten = (
                self._unwritten,
                f"\n{self._unwritten.lstrip()}",
            )  # Behind half a line, perhaps.
            with self._path.open("a", encoding="utf-8") as file:
                file.write(text)
            self._unwritten = ""


class NamesRead:
    """What a file of names says."""

    __slots__ = ("bad_lines", "subs", "topics")

    def __init__(self, path: Path) -> None:
        """Raises OSError. A line that was cut by a crash is passed over."""
        self.topics = {0: ""}
        self.subs: dict[tuple[int, int], str] = {}
        """By topic and subscription."""
        self.bad_lines = 0
        for line in filter(None, path.read_text(encoding="utf-8", errors="replace").split("\n")):
            try:
                found = json.loads(line)
                topic, name = int(found["topic"]), str(found["name"])
            except (ValueError, KeyError, TypeError):
                self.bad_lines += 1
                continue
            if "sub" in found:
                self.subs[topic, int(found["sub"])] = name
            else:
                self.topics[topic] = name
