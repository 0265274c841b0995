"""Names: the ids of topics and subscriptions in the record of one broker lifetime, and the file of their names.

The file gets a line for each id before any row with that id is written, so that it can be read after a crash. Ids begin
at 1; 0 stands for none. A topic that is opened again keeps its id, and so does a subscription, by its name.
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
        # 0 is taken by "no topic", so the length is the next free id.
        self[log] = topic = len(self)
        self._names.say({"topic": topic, "name": log})
        return topic


class NamesWriter:
    """Gives ids to names, and appends them to the file of names."""

    def __init__(self, path: Path) -> None:
        """`path`: the file, which is made with the first name."""
        self._path = path
        self._unwritten = ""
        self.topics = _Topics(self)
        """Ids by the name of the managed ledger; looking up a new name gives it an id."""
        self._known: dict[str, dict[str, int]] = {}
        """By topic: subscription ids by name."""
        self._moved: dict[str, dict[int, int]] = {}
        """By topic, ids of readers by number, if another subscription has that number as its id already."""

    def say(self, line: dict[str, object]) -> None:
        """Adds a line, which `flush` writes."""
        self._unwritten += json.dumps(line, ensure_ascii=False) + "\n"

    def reader_made(self, log: str, number: int, name: str) -> None:
        """Notes that a number stands for this subscription until the topic is closed."""
        known = self._known.setdefault(log, {})
        sub = known.get(name)
        if sub is None:
            taken = known.values()
            # The cache's number, if it is free: then rows need no translation (`numbers_are_ids`).
            sub = known[name] = number if number not in taken else max(taken) + 1
            self.say({"topic": self.topics[log], "sub": sub, "name": name})
        # A subscription was made anew after the topic had been closed, and readers are numbered from 1 again.
        if sub != number:
            self._moved.setdefault(log, {})[number] = sub

    def closed(self, log: str) -> None:
        """Forgets the topic's numbers: when it is opened again, readers are numbered anew."""
        # The ids in `_known` stay: a subscription keeps its id for the whole lifetime.
        self._moved.pop(log, None)

    @property
    def numbers_are_ids(self) -> bool:
        """True if each reader's number is its id, in all open topics: the usual case."""
        return not self._moved

    def sub(self, log: str, number: int) -> int:
        """Returns the id of the reader with this number."""
        moved = self._moved.get(log)
        return number if moved is None else moved.get(number, number)

    def flush(self) -> None:
        """Writes the new lines. Raises OSError; the next call tries the same lines again."""
        if self._unwritten:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # A failed write may have left an incomplete line, so the retry begins a new one.
            text, self._unwritten = self._unwritten, f"\n{self._unwritten.lstrip()}"
            with self._path.open("a", encoding="utf-8") as file:
                file.write(text)
            self._unwritten = ""


class NamesRead:
    """The content of a file of names."""

    def __init__(self, path: Path) -> None:
        """Raises OSError. A line that a crash has cut is skipped and counted."""
        self.topics = {0: ""}
        """Names of managed ledgers by id."""
        self.subs: dict[tuple[int, int], str] = {}
        """Names of subscriptions by the ids of topic and subscription."""
        self.bad_lines = 0
        """Lines that were skipped."""
        # Not `splitlines`: a name may hold other characters that end a line, such as U+2028.
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
