"""The path of a request: templates of many routes, that of a request's route, and its text for log lines and answers.

A path may end with a value of the configuration, and some of those are secrets. So no code but this module shows a path.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

from aiohttp import web

from broker.security.audit import shown
from foundation.settings.keys import MASK, mask

NAMESPACE: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
"""Template of the paths of a namespace's routes."""
TOPIC_NAME: Final = "{domain:persistent|non-persistent}/{tenant}/{namespace}/{topic}"
"""Template of a topic's name in the paths of routes."""
TOPIC: Final = f"/admin/v2/{TOPIC_NAME}"
"""Template of the paths of a topic's routes."""
SUBSCRIPTION: Final = f"{TOPIC}/subscription/{{subscription}}"
"""Template of the paths of a subscription's routes."""
CHECK_ALONE: Final = "magnetarCheckOnly"
"""Parameter with which a broker asks another one whether it would refuse a request about a bundle."""
_CONFIGURATION: Final = "/admin/v2/brokers/configuration/"
_KEY_WITHOUT_ROUTE: Final = re.compile(r"(.*?/configuration/+[^/]+/).", re.IGNORECASE | re.DOTALL)
"""A path up to the value of a key, as a client may write it by mistake: with more slashes, or in capitals."""


def template_of(request: web.Request) -> str | None:
    """Returns the template of the route that serves a request; None where there is none (404 and 405)."""
    resource = request.match_info.route.resource
    return None if resource is None else resource.canonical


def shown_path(request: web.Request) -> str:
    """Returns the path for a reader: secrets masked, cut to a line's length, control characters escaped.

    It is as the client sent it, with its percent signs, and without the query, which may hold a token.
    """
    return shown(_masked(request))


def _masked(request: web.Request) -> str:
    path = request.rel_url.raw_path
    template = template_of(request)
    if template is None:
        # No route, so no part of the path is known as a value. A token with a `/` that is not encoded comes here.
        match = _KEY_WITHOUT_ROUTE.match(unquote(path))
        return f"{match[1]}{MASK}" if match else path
    if template.startswith(_CONFIGURATION) and template.count("{") == 2:
        # The path ends with the key and its value, and the value of some keys is a secret.
        key, value = list(request.match_info.values())
        return f"{_CONFIGURATION}{key}/{mask(key, value)}"
    return path
