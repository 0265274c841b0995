"""Writes the moving pictures of the removal queue: `python -m tests.vectors.queue_pictures`, part of `make generate`.

They are drawn from the golden scripts in `docs/images/queue/scripts.jsonl`, recordings of Apache Pulsar's own classes, which
our removal queue runs. A picture of a queue that decides otherwise than the recording cannot be made.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from tests.vectors.queue_drawing import Drawing
from tests.vectors.queue_frames import frames_of
from tests.vectors.scripts import read_scripts

FOLDER: Final = Path(__file__).resolve().parents[2] / "docs" / "images" / "queue"
SCRIPTS: Final = FOLDER / "scripts.jsonl"
TITLES: Final = {
    "plain_fifo_size": "Entries that are not counted leave in the order in which they came",
    "expired_expected_reads_requeue_cap": "An entry with expected reads is requeued, three times at most here",
    "reads_consume_expected_count": "A delivery lowers the expected reads by one",
    "size_accessed_goes_on_second_lap": "An entry that was read since the last visit is requeued",
    "tombstone_at_head_drains_before_time_test": "Slots of invalidated entries are dropped first",
    "size_pass_burns_protection": "A size pass of Pulsar",
}
"""By the script's name; the release is added where both are drawn."""
WITH_RELEASE: Final = "size_pass_burns_protection"
"""The script whose outcome depends on the release."""


def pictures() -> dict[str, str]:
    """Returns each file's text by its name. ValueError if our queue decides otherwise than the recording."""
    drawn = {}
    for script in read_scripts(SCRIPTS):
        name, title = script["name"], TITLES[script["name"]]
        if name == WITH_RELEASE:
            name, title = f"{name}-{script['profile']}", f"{title} {script['profile']}"
        drawn[f"{name}.svg"] = Drawing(title, frames_of(script), script["config"]["max_requeue"]).text()
    return drawn


def main() -> int:
    """Writes the files that are not current."""
    for name, text in pictures().items():
        path = FOLDER / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path.relative_to(FOLDER.parents[2])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
