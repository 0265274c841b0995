"""Draws steps of the removal queue as an animated SVG, small and the same in each run.

The stage at the top moves: entries are requeued over the others, and removed ones fall out. Below it stands one row for each
operation with the queue after it, so the picture tells the whole story as a still: on paper, in a viewer without CSS
animations, and for people who asked their system for less motion. Colours follow the page, light or dark.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Final

from tests.vectors.queue_frames import Frame, Slot, rows_of

WIDTH: Final = 760
LEFT: Final = 30
BOX: Final = 64
"""The side of an entry before it is scaled."""
GAP: Final = 8
STAGE_TOP: Final = 118
ROW: Final = 42
ROW_SCALE: Final = 0.44
MOVE_S: Final = 0.45
"""Time in which an entry moves."""

LEGEND: Final = (
    "Top right: expected reads. Squares: requeues used. "
    "Thick frame: read since the last visit. Dashed: invalidated."
)
STYLE: Final = """\
.paper{fill:#fff}.box{fill:#e8f0fa;stroke:#35638f}.t{fill:#1c2733;font:15px system-ui,sans-serif}
.r1{fill:#1c2733;font:13px system-ui,sans-serif}.s{fill:#50606f;font:12px system-ui,sans-serif}.h{font-weight:700}
.id{font-weight:700;font-size:20px;text-anchor:middle}.r{font-size:14px;text-anchor:end;fill:#0b57a4}
.tick{fill:none;stroke:#8094a8}.used{fill:#c4560a}.read{fill:none;stroke:#0b57a4;stroke-width:4}
.gone{fill:#f4f4f4;stroke:#8a8f94;stroke-dasharray:4 3}.now{fill:#eef3f8}.line{stroke:#b4c0cc}
@media(prefers-color-scheme:dark){.paper{fill:#16191d}.box{fill:#22344a;stroke:#7aa7d6}.t,.r1{fill:#e6ebf0}
.s{fill:#a5b2bf}.r{fill:#8cc0f7}.used{fill:#f0924a}.read{stroke:#7db8f5}.gone{fill:#22262b;stroke:#80878e}
.now{fill:#222a33}.line{stroke:#46515c}}
@media(prefers-reduced-motion:reduce){*{animation:none!important}}
"""


@dataclass(frozen=True)
class Timing:
    """When each frame begins, in seconds, and the length of the whole."""

    begins: tuple[float, ...]
    total: float

    @classmethod
    def of(cls, frames: list[Frame]) -> Timing:
        """Gives inserts little time, and the last frame enough to be read before the picture begins anew."""
        begins, now = [], 0.6
        for frame in frames:
            begins.append(now)
            now += 0.7 if frame.text.startswith("Insert") else 1.6
        return cls(tuple(begins), now + 2.4)

    def percent(self, seconds: float) -> str:
        """Returns a moment as CSS wants it."""
        return f"{100 * seconds / self.total:.4g}%"


class Drawing:
    """One picture in the making."""

    def __init__(self, title: str, frames: list[Frame], requeues_max: int) -> None:
        self._title = title
        self._frames = frames
        self._requeues_max = requeues_max
        self._timing = Timing.of(frames)
        self._styles: dict[str, str] = {}
        """The body of each rule of keyframes, to its name: equal ones are written once."""
        places = max(max((len(frame.queue) for frame in frames), default=1), 6)
        self._scale = min(1.0, (WIDTH - 2 * LEFT) / (places * (BOX + GAP)))
        # The still shows the last frame that has something to look at.
        self._still = max(number for number, frame in enumerate(frames) if frame.queue)
        self._rows = rows_of(frames)

    def text(self) -> str:
        """Returns the file."""
        rows_top = STAGE_TOP + BOX * self._scale + 62
        height = round(rows_top + ROW * len(self._rows) + 34)
        body = [*self._captions(), *self._stage(), *self._strip(rows_top)]
        told = ". ".join(f"{row.text}: {row.outcome}" if row.outcome else row.text for row in self._rows)
        style = STYLE + "".join(f"@keyframes {name}{{{body}}}" for body, name in self._styles.items())
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
                f'height="{height}" role="img" aria-labelledby="title told">',
                f'<title id="title">{escape(self._title)}</title><desc id="told">{escape(told)}.</desc>',
                f"<style>\n{style}\n.a{{animation-duration:{self._timing.total:.2f}s;animation-iteration-count:infinite}}\n"
                ".v{animation-timing-function:step-end}.m{animation-timing-function:ease-in-out}</style>",
                f'<rect class="paper" width="{WIDTH}" height="{height}" rx="6"/>',
                f'<text class="t h" x="{LEFT}" y="30">{escape(self._title)}</text>',
                _definitions(self._requeues_max),
                *body,
                f'<text class="s" x="{LEFT}" y="{height - 12}">{escape(LEGEND)}</text>',
                "</svg>\n",
            ]
        )

    def _animation(self, body: str) -> str:
        name = self._styles.setdefault(body, f"k{len(self._styles)}")
        return f"animation-name:{name}"

    def _shown(self, shown: list[bool], at_first: bool = False) -> str:
        """Returns the attributes of an element that is visible in these frames alone."""
        steps, last = [f"0%{{opacity:{int(at_first)}}}"], at_first
        for begin, visible in zip(self._timing.begins, shown, strict=True):
            if visible != last:
                steps.append(f"{self._timing.percent(begin)}{{opacity:{int(visible)}}}")
                last = visible
        still = f'opacity="{int(shown[self._still])}"'
        if len(steps) == 1:
            return still
        return f'class="a v" {still} style="{self._animation("".join(steps))}"'

    def _captions(self) -> list[str]:
        texts: dict[str, list[int]] = {}
        for number, frame in enumerate(self._frames):
            texts.setdefault(frame.text, []).append(number)
        drawn = []
        for text, numbers in texts.items():
            shown = [number in numbers for number in range(len(self._frames))]
            drawn.append(
                f'<g {self._shown(shown)}><text class="t" x="{LEFT}" y="58">{escape(text)}</text></g>'
            )
        return drawn

    def _stage(self) -> list[str]:
        bottom = STAGE_TOP + BOX * self._scale + 10
        drawn = [
            f'<path class="line" d="M{LEFT} {bottom}H{WIDTH - LEFT}"/>',
            f'<text class="s" x="{LEFT}" y="{bottom + 17}">head: visited first</text>',
            f'<text class="s" x="{WIDTH - LEFT}" y="{bottom + 17}" text-anchor="end">tail: new and requeued entries</text>',
        ]
        entries = dict.fromkeys(slot.entry for frame in self._frames for slot in frame.queue)
        return drawn + [self._moving(entry) for entry in entries]

    def _place(self, number: int) -> tuple[float, float]:
        return round(LEFT + number * (BOX + GAP) * self._scale, 1), STAGE_TOP

    def _moving(self, entry: int) -> str:
        """Draws one entry with all its looks."""
        found = [_find(frame, entry) for frame in self._frames]
        body, last = [self._keyframe(0, LEFT, STAGE_TOP, 0, 0)], None
        for begin, at in zip(self._timing.begins, found, strict=True):
            place = None if at is None else at[0]
            before = None if last is None else last[0]
            if place != before:
                body += self._move(begin, before, place)
            last = at
        still = found[self._still]
        x, y = self._place(still[0] if still else 0)
        slots = [at[1] if at else None for at in found]
        return (
            f'<g class="a m" opacity="{int(still is not None)}" transform="translate({x} {y}) scale({self._scale:.3g})" '
            f'style="{self._animation("".join(body))}">{self._looks(entry, slots)}</g>'
        )

    def _keyframe(self, seconds: float, x: float, y: float, opacity: int, lift: float) -> str:
        moved = f"translate({x:g}px,{y + lift:g}px)scale({self._scale:.3g})"
        return f"{self._timing.percent(seconds)}{{transform:{moved};opacity:{opacity}}}"

    def _move(self, begin: float, before: int | None, after: int | None) -> list[str]:
        """Returns the keyframes of one move: in from the right, over the others to the tail, down and out, or along."""
        end = begin + MOVE_S
        if after is None:
            assert before is not None
            x, y = self._place(before)
            return [self._keyframe(begin, x, y, 1, 0), self._keyframe(end, x, y, 0, 40)]
        x, y = self._place(after)
        if before is None:
            return [self._keyframe(begin, x + 40, y, 0, 0), self._keyframe(end, x, y, 1, 0)]
        from_x, _ = self._place(before)
        moved = [self._keyframe(begin, from_x, y, 1, 0), self._keyframe(end, x, y, 1, 0)]
        if after > before:
            moved.insert(1, self._keyframe(begin + MOVE_S / 2, (from_x + x) / 2, y, 1, -42))
        return moved

    def _looks(self, entry: int, slots: list[Slot | None]) -> str:
        drawn = [_BOX, _name(entry)]
        # An entry that left keeps its last look while it falls.
        kept: list[Slot] = []
        first = next(slot for slot in slots if slot)
        for slot in slots:
            kept.append(slot or (kept[-1] if kept else first))
        drawn += [
            f"<g {self._shown([slot.requeues >= used for slot in kept])}>{_used(used)}</g>"
            for used in range(1, max(slot.requeues for slot in kept) + 1)
        ]
        for count in dict.fromkeys(slot.expected for slot in kept):
            shown = [slot.expected == count for slot in kept]
            drawn.append(f"<g {self._shown(shown, shown[0])}>{_expected(count)}</g>")
        for look, drawing in (("accessed", _READ), ("invalidated", _GONE + _name(entry))):
            shown = [bool(getattr(slot, look)) for slot in kept]
            if any(shown):
                drawn.append(f"<g {self._shown(shown)}>{drawing}</g>")
        return "".join(drawn)

    def _strip(self, top: float) -> list[str]:
        drawn, number = [], 0
        column = 0.46 * WIDTH
        for place, row in enumerate(self._rows):
            y = top + place * ROW
            shown = [number <= at < number + len(row.frames) for at in range(len(self._frames))]
            number += len(row.frames)
            mark = f'<rect class="now" x="{LEFT - 12}" y="{y:g}" width="{WIDTH - 2 * LEFT + 24}" height="{ROW - 2}" rx="4"/>'
            drawn.append(f"<g {self._shown(shown)}>{mark}</g>")
            drawn.append(
                f'<text class="r1" x="{LEFT}" y="{y + (17 if row.outcome else 25):g}">{place + 1}. {escape(row.text)}</text>'
            )
            if row.outcome:
                drawn.append(f'<text class="s" x="{LEFT + 16}" y="{y + 33:g}">{escape(row.outcome)}</text>')
            drawn += _small_queue(row.frames[-1].queue, column, y)
        return drawn


def _small_queue(queue: tuple[Slot, ...], left: float, y: float) -> list[str]:
    if not queue:
        return [f'<text class="s" x="{left:g}" y="{y + 25:g}">the queue is empty</text>']
    scale = min(ROW_SCALE, (WIDTH - LEFT - left) / (len(queue) * (BOX + GAP)))
    top = y + (ROW - 2 - BOX * scale) / 2
    drawn = []
    for place, slot in enumerate(queue):
        x = left + place * (BOX + GAP) * scale
        drawn.append(
            f'<g transform="translate({x:.4g} {top:.4g}) scale({scale:.3g})">{_still_entry(slot)}</g>'
        )
    return drawn


def _still_entry(slot: Slot) -> str:
    if slot.invalidated:
        return _GONE + _name(slot.entry)
    used = "".join(_used(number) for number in range(1, slot.requeues + 1))
    read = _READ if slot.accessed else ""
    return _BOX + _name(slot.entry) + used + _expected(slot.expected) + read


def _find(frame: Frame, entry: int) -> tuple[int, Slot] | None:
    return next(((place, slot) for place, slot in enumerate(frame.queue) if slot.entry == entry), None)


_BOX: Final = '<use href="#b"/>'
"""The box of an entry with its ticks. These drawings are defined once in the file."""
_READ: Final = '<use href="#d"/>'
_GONE: Final = '<use href="#g"/>'


def _definitions(requeues_max: int) -> str:
    ticks = [
        f'<rect class="tick" x="{x}" y="50" width="7" height="7"/>' for x in map(_tick_x, range(requeues_max))
    ]
    used = [
        f'<rect id="u{number + 1}" class="used" x="{_tick_x(number)}" y="50" width="7" height="7"/>'
        for number in range(requeues_max)
    ]
    return (
        f'<defs><g id="b"><rect class="box" width="{BOX}" height="{BOX}" rx="8"/>{"".join(ticks)}</g>{"".join(used)}'
        f'<rect id="d" class="read" x="2" y="2" width="{BOX - 4}" height="{BOX - 4}" rx="6"/>'
        f'<rect id="g" class="gone" width="{BOX}" height="{BOX}" rx="8"/></defs>'
    )


def _tick_x(number: int) -> int:
    return 7 + 10 * number


def _name(entry: int) -> str:
    return f'<text class="t id" x="{BOX // 2 - 4}" y="38">{entry}</text>'


def _expected(count: int | None) -> str:
    return "" if count is None else f'<text class="t r" x="{BOX - 7}" y="20">{count}</text>'


def _used(number: int) -> str:
    return f'<use href="#u{number}"/>'
