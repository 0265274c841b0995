"""Reads JSON objects with known members out of requests; `broker/service/policies/forms.py` has the types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiohttp import web

from broker.admin.http.answers import BadRequest, body_of
from broker.service.namespaces.namespaces import Json
from broker.service.policies.forms import Form, Names, PolicyRefused, WrongType


async def fields_of(request: web.Request, forms: Mapping[str, Form[Any]]) -> dict[str, Json] | None:
    """Returns the members of the body that are in `forms`; others are dropped, as in Pulsar.

    None for an empty body, and for `null`. Raises BadRequest for another type, PolicyRefused for a value out of range.
    """
    body = await body_of(request)
    if body is None:
        return None
    if not isinstance(body, dict):
        raise BadRequest("The body must be a JSON object")
    return checked_fields(body, forms)


def checked_fields(values: Mapping[str, Json], forms: Mapping[str, Form[Any]]) -> dict[str, Json]:
    """Returns the members that are in `forms` and set. Errors as for `fields_of`."""
    found: dict[str, Json] = {}
    for name, form in forms.items():
        given = values.get(name)
        if given is not None:
            try:
                value = form.read(given)
                form.check(value)
            except WrongType as error:
                raise BadRequest(f"{name}={error}") from None
            except PolicyRefused as error:
                raise type(error)(f"{name}={error}") from None
            found[name] = form.write(value)
    return found


async def names_of(request: web.Request) -> list[str] | None:
    """Returns the JSON list of texts in the body, each once; None for an empty body. Raises BadRequest."""
    body = await body_of(request)
    return None if body is None else checked_names(body)


def checked_names(value: Json) -> list[str]:
    """Returns a JSON list of texts, each once. Raises BadRequest for anything else."""
    try:
        return list(Names().read(value))
    except WrongType as error:
        raise BadRequest(str(error)) from None
