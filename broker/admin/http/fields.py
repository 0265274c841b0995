"""Reads JSON objects with known members out of requests; `broker/service/policies/forms.py` has the types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiohttp import web

from broker.admin.http.answers import BadRequest, body_of
from broker.service.policies.forms import Form, Names, named
from foundation.value import Json


async def fields_of(request: web.Request, forms: Mapping[str, Form[Any]]) -> dict[str, Json] | None:
    """Returns the members of the body that are in `forms`; others are dropped, as in Pulsar.

    None for an empty body, and for `null`. Raises BadRequest for a body that is no object, and PolicyRefused for a member
    of another type or out of range.
    """
    body = await body_of(request)
    if body is None:
        return None
    if not isinstance(body, dict):
        raise BadRequest("The body must be a JSON object")
    return checked_fields(body, forms)


def checked_fields(values: Mapping[str, Json], forms: Mapping[str, Form[Any]]) -> dict[str, Json]:
    """Returns the members that are in `forms` and set. Raises PolicyRefused."""
    found: dict[str, Json] = {}
    for name, form in forms.items():
        given = values.get(name)
        if given is not None:
            with named(name):
                value = form.read(given)
                form.check(value)
            found[name] = form.write(value)
    return found


async def names_of(request: web.Request) -> list[str] | None:
    """Returns the JSON list of texts in the body, each once; None for an empty body. Raises WrongType."""
    body = await body_of(request)
    return None if body is None else list(Names().read(body))
