"""`/admin/v2/brokers/configuration`: shows the settings, and changes those that may change at run time.

Pulsar changes a setting by POST alone and stores any text, even one that it ignores later. Here PUT works as well, and a
value that a start would refuse is refused, with Pulsar's status and its words in front. `DynamicSettings` makes the
change.
"""

from __future__ import annotations

from collections.abc import Iterable

from aiohttp import web

from broker.admin.http.answers import PreconditionFailed, answer
from broker.admin.service_view import BROKER, may_be_newer_in_store
from foundation.settings.errors import NotDynamic, SettingsError
from foundation.settings.keys import format_value, mask
from foundation.settings.settings import DYNAMIC, Note

NOT_UPDATED = "Can't update non-dynamic configuration"
"""Pulsar's words for a key that must not change at run time."""
NOT_DELETED = "Can't delete non-dynamic configuration"
"""Pulsar's words for the same at a deletion."""
INVALID = "Invalid dynamic-config value"
"""Pulsar's words for a value that is not allowed."""


async def names(request: web.Request) -> web.Response:
    """Returns the keys that may change at run time."""
    return answer(list(request.app[BROKER].dynamic_settings.names))


async def overrides(request: web.Request) -> web.Response:
    """Returns the keys changed at run time with their texts as given; secrets are masked."""
    settings = request.app[BROKER].dynamic_settings
    if may_be_newer_in_store(request):
        await settings.read_newest()
    texts = settings.texts
    return answer({name: mask(name, text) for name, text in texts.items()})


async def runtime(request: web.Request) -> web.Response:
    """Returns every key with its effective value as text; secrets are masked."""
    settings = request.app[BROKER].settings
    values = {name: format_value(settings.value(name)) for name in sorted(settings.table.keys)}
    return answer({name: mask(name, text) for name, text in values.items()})


async def change(request: web.Request) -> web.Response:
    """Changes one key. 412 for a key that is not dynamic, and for a value that is not allowed."""
    match = request.match_info
    try:
        notes = await request.app[BROKER].dynamic_settings.set(match["key"], match["value"])
    except NotDynamic as error:
        raise PreconditionFailed(_reason(NOT_UPDATED, error)) from None
    except SettingsError as error:
        raise PreconditionFailed(_reason(INVALID, error)) from None
    return _changed(notes)


async def restore(request: web.Request) -> web.Response:
    """Restores the value of the start. 412 for a key that is not dynamic."""
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
    """Returns 200 without a body, as Pulsar does; warnings are in the header that `magnetar config` prints."""
    warnings = [f'299 - "{note.text}"' for note in notes]
    return web.Response(headers={"Warning": ", ".join(warnings)} if warnings else None)


CONFIGURATION_ROUTES = (
    web.get("/admin/v2/brokers/configuration", names),
    web.get("/admin/v2/brokers/configuration/values", overrides),
    web.get("/admin/v2/brokers/configuration/runtime", runtime),
    web.post("/admin/v2/brokers/configuration/{key}/{value}", change),
    web.put("/admin/v2/brokers/configuration/{key}/{value}", change),
    web.delete("/admin/v2/brokers/configuration/{key}", restore),
)
