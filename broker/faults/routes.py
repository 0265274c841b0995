"""The HTTP side of the controls, for tests in any language: `/magnetar/test/` with `clock`, `faults` and `refusals`.

The routes exist only in a broker that was started with `--test-faults`. They pass the same guards as the admin API; with
authorization they need a superuser.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict, fields
from typing import Final

from aiohttp import web

from broker.faults.controls import TestControls
from broker.faults.held_clock import ADVANCE_MS_MAX
from broker.faults.script import DELAY_S_MAX, BadFault, ScriptedFault
from foundation.units import NS_PER_MS

CLOCK: Final = "/magnetar/test/clock"
FAULTS: Final = "/magnetar/test/faults"
REFUSALS: Final = "/magnetar/test/refusals"
_FIELDS: Final = {
    field.name: field.type for field in fields(ScriptedFault) if field.init and field.name != "id"
}

Settle = Callable[[], Awaitable[None]]
"""Waits until the work that a timer began has ended."""


class ControlRoutes:
    """The handlers for one broker."""

    def __init__(self, controls: TestControls, settle_of: Callable[[], Settle]) -> None:
        """`settle_of` is called at the begin of an advance; its result waits for what began since then."""
        self._controls = controls
        self._settle_of = settle_of

    def routes(self) -> list[web.RouteDef]:
        """Returns the routes."""
        return [
            web.get(CLOCK, self.now),
            web.post(CLOCK, self.advance),
            web.get(FAULTS, self.faults),
            web.post(FAULTS, self.add),
            web.delete(FAULTS, self.clear),
            web.delete(FAULTS + "/{id}", self.remove),
            web.get(REFUSALS, self.refusals),
        ]

    async def now(self, request: web.Request) -> web.Response:
        """Returns `{"now_ms": …, "ahead_ms": …}`: the broker's time, and how far it is ahead of the machine's."""
        return self._time()

    async def advance(self, request: web.Request) -> web.Response:
        """Takes `{"advance_ms": n}` and returns the time when all that fell due has happened."""
        wanted = (await _object(request)).get("advance_ms")
        if not isinstance(wanted, int) or isinstance(wanted, bool) or not 0 < wanted <= ADVANCE_MS_MAX:
            return _refused(400, f"advance_ms={wanted!r}: give a whole number of 1 to {ADVANCE_MS_MAX}")
        held = self._controls.held
        if held.advancing:
            return _refused(409, "an advance is under way: wait for its answer")
        await held.advance(wanted * NS_PER_MS, self._settle_of())
        return self._time()

    async def faults(self, request: web.Request) -> web.Response:
        """Returns all faults, each with the occurrences that it has seen and how often it has happened."""
        return web.json_response([asdict(fault) for fault in self._controls.script.faults.values()])

    async def add(self, request: web.Request) -> web.Response:
        """Sets a fault and returns its id."""
        given = await _object(request)
        if unknown := sorted(given.keys() - _FIELDS.keys()):
            return _refused(400, f"unknown fields {unknown}: a fault has {sorted(_FIELDS)}")
        try:
            fault = _fault(given)
            return web.json_response({"id": self._controls.script.add(fault)}, status=201)
        except BadFault as error:
            return _refused(400, str(error))

    async def clear(self, request: web.Request) -> web.Response:
        """Removes all faults and returns them as `faults` does."""
        answer = await self.faults(request)
        self._controls.script.faults.clear()
        return answer

    async def remove(self, request: web.Request) -> web.Response:
        """Removes one fault; 404 for an id that is not set."""
        text = request.match_info["id"]
        fault = (
            self._controls.script.faults.pop(int(text), None) if text.isdecimal() and len(text) < 10 else None
        )
        return (
            _refused(404, f"no fault has the id {text[:20]!r}")
            if fault is None
            else web.json_response(asdict(fault))
        )

    async def refusals(self, request: web.Request) -> web.Response:
        """Returns how many errors clients were sent since the start, by names of Pulsar's `ServerError`."""
        return web.json_response(dict(self._controls.refusals))

    def _time(self) -> web.Response:
        held = self._controls.held
        return web.json_response({"now_ms": held.wall_ms(), "ahead_ms": held.ahead_ns // NS_PER_MS})


def _fault(given: dict[str, object]) -> ScriptedFault:
    """Makes a fault of JSON; BadFault for a value of another type."""
    if missing := [name for name in ("on", "do") if name not in given]:
        raise BadFault(f"{missing[0]} is missing")
    texts: dict[str, object] = {name: given[name] for name in ("on", "do", "error", "topic") if name in given}
    numbers: dict[str, object] = {name: given[name] for name in ("at", "times") if name in given}
    seconds = given.get("seconds", 0.0)
    for name, text in texts.items():
        if not isinstance(text, str):
            raise BadFault(f"{name}={text!r}: give a text")
    for number, value in numbers.items():
        if not isinstance(value, int) or isinstance(value, bool):
            raise BadFault(f"{number}={value!r}: give a whole number")
    if not isinstance(seconds, int | float) or isinstance(seconds, bool):
        raise BadFault(f"seconds={seconds!r}: give a number")
    if not 0 <= seconds <= DELAY_S_MAX:  # Here too: a whole number may be too long for a float.
        raise BadFault(f"seconds={str(seconds)[:20]}: give up to {DELAY_S_MAX:.0f}")
    return ScriptedFault(
        on=str(texts["on"]),
        do=str(texts["do"]),
        error=str(texts.get("error", "")),
        topic=str(texts.get("topic", "")),
        at=int(str(numbers.get("at", 1))),
        times=int(str(numbers.get("times", 1))),
        seconds=float(seconds),
    )


async def _object(request: web.Request) -> dict[str, object]:
    """Returns the JSON object of the body; an empty one for anything else, which lacks every field."""
    try:
        found = json.loads(await request.read())
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _refused(status: int, reason: str) -> web.Response:
    return web.json_response({"reason": reason}, status=status)
