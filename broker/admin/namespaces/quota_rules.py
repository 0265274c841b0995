"""Rules of backlog quotas: their JSON, and that a quota stays below the retention. Pure.

Source: Pulsar's NamespacesBase and PersistentTopicsBase, release 4.2; statuses and texts as recorded.
"""

from __future__ import annotations

from broker.admin.http.answers import PreconditionFailed
from broker.service.policies.backlog_quota import REACTIONS, BacklogQuota
from broker.service.policies.forms import Whole, WrongCombination, named
from broker.service.policies.values import Retention
from foundation.settings.keys import INT_MAX, LONG_MAX
from foundation.units import MIB, SECONDS_PER_MINUTE
from foundation.value import Json


def checked_quota(quota: dict[str, Json], namespace: str) -> dict[str, Json]:
    """Returns the fields of a backlog quota; others are dropped, as in Pulsar.

    WrongType for a wrong number, WrongCombination with Pulsar's sentence without a known action.
    """
    checked: dict[str, Json] = {}
    # `limitSize` is the newer name of `limit`; clients read either.
    size = quota.get("limitSize", quota.get("limit"))
    if size is not None:
        checked["limit"] = checked["limitSize"] = _number(size, "limitSize", LONG_MAX)
    if quota.get("limitTime") is not None:
        checked["limitTime"] = _number(quota["limitTime"], "limitTime", INT_MAX)
    if quota.get("policy") not in REACTIONS:
        raise WrongCombination(
            f"Set namespace[{namespace}] backlog quota failed because the data validation failed."
            " the attribute policy cannot be null"
        )
    checked["policy"] = quota["policy"]
    return checked


def _number(value: Json, name: str, most: int) -> int:
    """Returns a number, also one in quotes, as the Go client's tests send it."""
    with named(name):
        return Whole(-most - 1, most, most).read(value)


def fits(quota: BacklogQuota, retention: Retention) -> bool:
    """Returns False for a quota that reaches a limit of the retention; retention without a limit fits every quota."""
    by_size = retention.mib > 0 and quota.size_max >= retention.mib * MIB
    by_age = retention.minutes > 0 and quota.age_max_s >= retention.minutes * SECONDS_PER_MINUTE
    return not (by_size or by_age)


def refuse_quota(quota: BacklogQuota, retention: Retention, owner: str) -> None:
    """Raises PreconditionFailed for a quota that does not fit; `owner` is `namespace` or `topic`."""
    if not fits(quota, retention):
        raise PreconditionFailed(
            f"Backlog Quota exceeds configured retention quota for {owner}. Please increase retention quota and retry"
        )


def refuse_retention(retention: Retention, quota: BacklogQuota, owner: str) -> None:
    """Raises PreconditionFailed for a retention that does not fit."""
    if not fits(quota, retention):
        # Pulsar says the remedy for a topic alone.
        remedy = " Please increase retention quota and retry" if owner == "topic" else ""
        raise PreconditionFailed(f"Retention Quota must exceed configured backlog quota for {owner}.{remedy}")
