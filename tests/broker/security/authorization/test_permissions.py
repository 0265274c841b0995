"""Grants on namespaces, topics and subscriptions, and their form in the store."""

from __future__ import annotations

import pytest

from broker.security.authorization.permissions import (
    Action,
    NamespacePermissions,
    parse_actions,
    parse_permissions,
    role_matches,
    stored_permissions,
)

BOTH = frozenset((Action.PRODUCE, Action.CONSUME))


@pytest.mark.parametrize(
    ("pattern", "role", "covered"),
    [
        ("app-*", "app-1", True),
        ("*-app", "my-app", True),
        ("*", "anyone", True),
        ("app", "app", True),
        ("app-*", "other", False),
        ("a*p", "app", False),
        ("", "app", False),
    ],
)
def test_wildcard_covers_roles_at_either_end(pattern: str, role: str, covered: bool) -> None:
    assert role_matches(pattern, role, wildcards=True) is covered


def test_wildcard_is_a_plain_character_when_wildcards_are_off() -> None:
    assert not role_matches("app-*", "app-1", wildcards=False)
    assert role_matches("app-*", "app-*", wildcards=False)


def test_permissions_survive_the_store() -> None:
    granted = (
        NamespacePermissions()
        .grant("both", BOTH)
        .grant_on_topics(["persistent://t/n/a"], "one", [Action.PRODUCE])
        .grant_on_subscription("s", ["both"])
    )
    assert parse_permissions(stored_permissions(granted)) == granted
    assert stored_permissions(granted)["namespace_auth"] == {"both": ["consume", "produce"]}


def test_grant_replaces_the_actions_of_a_role() -> None:
    granted = NamespacePermissions().grant("r", BOTH).grant("r", [Action.CONSUME])
    assert granted.roles["r"] == {Action.CONSUME}


def test_revoke_on_a_topic_leaves_the_other_topics_and_roles() -> None:
    granted = NamespacePermissions().grant_on_topics(["a", "b"], "r", BOTH).grant_on_topics(["a"], "q", BOTH)
    left = granted.revoke_on_topics(["a"], "r")
    assert left.topics == {"a": {"q": BOTH}, "b": {"r": BOTH}}
    assert left.forget_topics(["a", "b"]) == NamespacePermissions()


def test_unreadable_grants_grant_nothing() -> None:
    stored = {"namespace_auth": {"r": ["produce", "fly", 7], "q": "produce"}, "destination_auth": ["x"]}
    granted = parse_permissions(stored)
    assert granted.roles == {"r": {Action.PRODUCE}, "q": frozenset()}
    assert granted.topics == {}


def test_unknown_action_is_refused() -> None:
    with pytest.raises(ValueError, match="'fly' is not an action; allowed are produce, consume"):
        parse_actions(["produce", "fly"])
    with pytest.raises(ValueError, match=r"'\[\]' is not an action"):
        parse_actions([[]])
