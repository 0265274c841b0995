"""Reads the parameters of the console's requests."""

from __future__ import annotations

from collections.abc import Collection

from aiohttp import web

from broker.admin.http.answers import BadParameter

DIGITS_MAX = 18
"""Digits of a number in a request."""


def whole(request: web.Request, name: str, default: int, least: int, most: int) -> int:
    """Returns a whole number of the query. Raises BadParameter outside of `least` to `most`."""
    text = request.query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) <= DIGITS_MAX and least <= int(text) <= most):
        raise BadParameter(f"{name}={text[:50]!r}: a whole number from {least} to {most} is allowed")
    return int(text)


def flag(request: web.Request, name: str) -> bool:
    """Returns a truth value of the query, False by default. Raises BadParameter for another word."""
    text = request.query.get(name, "false")
    if text not in ("true", "false"):
        raise BadParameter(f"{name}={text[:50]!r}: allowed are true and false")
    return text == "true"


def one_of(request: web.Request, name: str, allowed: Collection[str], default: str) -> str:
    """Returns a word of the query. Raises BadParameter for one that is not allowed."""
    text = request.query.get(name, default)
    if text not in allowed:
        raise BadParameter(f"{name}={text[:50]!r}: allowed are {', '.join(allowed)}")
    return text
