"""`/admin/v2/brokers/configuration`: what is set, what may be changed at run time, and changing it.

Pulsar changes a setting by POST alone and stores any text, to ignore it later; here PUT is taken as well, and a
value that a start would refuse is refused, with Pulsar's status and its words in front.
"""

from __future__ import annotations

from collections.abc import Iterable

from aiohttp import web

from broker.admin.answers import PreconditionFailed, answer
from broker.admin.service_view import BROKER
from settings.errors import NotDynamic, SettingsError
from settings.keys import format_value, mask
from settings.settings import DYNAMIC, Note

NOT_UPDATED = "Can't update non-dynamic configuration"
NOT_DELETED = "Can't delete non-dynamic configuration"
INVALID = "Invalid dynamic-config value"


async def names(request: web.Request) -> web.Response:
    return answer(list(request.app[BROKER].dynamic_settings.names))


async def overrides(request: web.Request) -> web.Response:
    """What is set at run time, as it was given; secrets are masked."""
    texts = request.app[BROKER].dynamic_settings.texts
    return answer({name: mask(name, text) for name, text in texts.items()})


async def runtime(request: web.Request) -> web.Response:
    """Every key with its effective value as text; secrets are masked."""
    settings = request.app[BROKER].settings
    values = {name: format_value(settings.value(name)) for name in sorted(settings.table.keys)}
    return answer({name: mask(name, text) for name, text in values.items()})


async def change(request: web.Request) -> web.Response:
    match = request.match_info
    try:
        notes = await request.app[BROKER].dynamic_settings.set(match["key"], match["value"])
    except NotDynamic as error:
        raise PreconditionFailed(_reason(NOT_UPDATED, error)) from None
    except SettingsError as error:
        raise PreconditionFailed(_reason(INVALID, error)) from None
    return _changed(notes)


async def take_back(request: web.Request) -> web.Response:
    try:
        notes = await request.app[BROKER].dynamic_settings.unset(request.match_info["key"])
    except NotDynamic as error:
        raise PreconditionFailed(_reason(NOT_DELETED, error)) from None
    except SettingsError as error:
        raise PreconditionFailed(_reason(INVALID, error)) from None
    return _changed(notes)


def _reason(words: str, error: SettingsError) -> str:
    return f"{words}: {error.line.removeprefix(f'{DYNAMIC}: ')}"


def _changed(notes: Iterable[Note]) -> web.Response:
    """200 without a body, as Pulsar answers; what the log warns of stands in a header too."""
    warnings = [f'299 - "{note.text}"' for note in notes]
    return web.Response(headers={"Warning": ", ".join(warnings)} if warnings else None)


CONFIGURATION_ROUTES = (
    web.get("/admin/v2/brokers/configuration", names),
    web.get("/admin/v2/brokers/configuration/values", overrides),
    web.get("/admin/v2/brokers/configuration/runtime", runtime),
    web.post("/admin/v2/brokers/configuration/{key}/{value}", change),
    web.put("/admin/v2/brokers/configuration/{key}/{value}", change),
    web.delete("/admin/v2/brokers/configuration/{key}", take_back),
)
