"""The result of replaying one golden file. Every replayer imports it; it imports nothing of ours."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Result:
    """Passed and failed are counts of scripts; each failure has one message or more that name it."""

    passed: int = 0
    failed: int = 0
    messages: list[str] = field(default_factory=list)

    def add(self, other: Result) -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.messages += other.messages

    def judge(self, name: str, difference: str | None, reason: str | None) -> None:
        """Counts one script. `reason` says why ours differs, if it is explained; None: it is not."""
        if difference is None:
            self.passed += 1
            if reason is not None:
                self.messages.append(f"{name}: passes, though it is explained: {reason}")
        elif reason is not None:
            self.messages.append(f"explained: {name}: {reason}")
        else:
            self.failed += 1
            self.messages.append(f"{name}: {difference}")
