"""Decides which roles must have a right, when a proxy may speak for its clients.

A proxy connects with a role of its own (`proxyRoles`) and names the role of its client, the original principal. Both need
the right then, so a proxy that was broken into gains nothing beyond what its own role has. The rules are those of
`AuthorizationService.isValidOriginalPrincipal` of Apache 4.2.4.
"""

from __future__ import annotations

from collections.abc import Collection

from broker.security.principal import Principal


def original_fault(
    principal: Principal, proxy_roles: Collection[str], *, own_name_allowed: bool = False
) -> str | None:
    """Returns the fault in a principal's pair of roles, None for a valid one.

    `own_name_allowed`: a client that is no proxy may name itself as the original, as Apache allows over HTTP only.
    """
    role, original = principal.role, principal.original
    if role in proxy_roles:
        if not original or not original.strip():
            return f"The proxy role {role!r} must name the role of its client (original principal)"
        if original in proxy_roles:
            return f"The original principal {original!r} is a proxy role itself"
        return None
    if not original or not original.strip() or (own_name_allowed and original == role):
        return None
    return f"The role {role!r} is not in proxyRoles and must not name an original principal"


def roles_to_check(principal: Principal, proxy_roles: Collection[str]) -> tuple[str, ...]:
    """Returns the roles that all need a right; none for a client without a role or with an invalid pair."""
    if principal.role is None or original_fault(principal, proxy_roles, own_name_allowed=True) is not None:
        return ()
    if principal.role in proxy_roles and principal.original is not None:
        return principal.role, principal.original
    return (principal.role,)
