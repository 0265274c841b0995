"""AuthorizationSettings: the keys of broker.conf about the rights of roles."""

from __future__ import annotations

from broker.config.fields import broker_key
from foundation.settings.fields import RoomSettings


class AuthorizationSettings(RoomSettings):
    """Switches of authorization, and the roles that stand outside of tenants."""

    enabled: bool = broker_key.bool("authorizationEnabled")
    superusers: tuple[str, ...] = broker_key.rule(lambda settings: settings.list("superUserRoles"))
    """Roles that may do everything."""
    proxies: tuple[str, ...] = broker_key.rule(lambda settings: settings.list("proxyRoles"))
    """Roles that speak for other roles and must name them."""
    wildcards: bool = broker_key.bool("authorizationAllowWildcardsMatching")
