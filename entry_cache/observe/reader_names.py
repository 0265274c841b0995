"""Reader names: the active cursors that are still to read an entry, by name, for events and explanations."""

from __future__ import annotations

from entry_cache.active_cursors import NAMES_KEPT, ActiveCursors, count_to


def names_at_or_before(
    cursors: ActiveCursors, position: tuple[int, int], names_max: int = NAMES_KEPT
) -> tuple[str, ...]:
    """Returns the names of those cursors that are still to read an entry at `position`.

    Cursors without a position are named as long as there are `names_max` cursors at most. Of more cursors the first
    `names_max` by position are named, because looking through all of them would hold up each insert.
    """
    places = cursors.places
    if names_max == NAMES_KEPT and (not places or places[-1][:2] <= position):
        # The usual case at the tail: every cursor stands before a new entry, so one tuple serves all inserts.
        return cursors.first_names
    if len(cursors) <= names_max:
        return tuple([name for name in cursors if (at := cursors.position(name)) is None or at <= position])
    return tuple([place[2] for place in places[: min(count_to(places, position), names_max)]])
