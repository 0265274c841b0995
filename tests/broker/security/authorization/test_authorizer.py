"""Rights of roles follow Pulsar's rules, for every kind of right."""

from __future__ import annotations

import pytest

from broker.security.authorization.authorizer import Authorizer
from broker.security.authorization.permissions import Action, NamespacePermissions
from broker.security.authorization.roles import original_fault
from broker.security.authorization.settings import AuthorizationSettings
from broker.security.principal import NOBODY, Principal
from foundation.model.topic_name import parse_topic_name

TOPIC = parse_topic_name("persistent://t/n/a")
PARTITION = TOPIC.with_partition(4)


class Grants:
    """Grants of one tenant `t` with one namespace `t/n`."""

    def __init__(self) -> None:
        self.granted = NamespacePermissions()
        self.prefix = False

    def admin_roles(self, tenant: str) -> list[str] | None:
        return ["boss"] if tenant == "t" else None

    def permissions(self, namespace: str) -> NamespacePermissions | None:
        return self.granted if namespace == "t/n" else None

    def needs_prefix(self, namespace: str) -> bool:
        return self.prefix


def authorizer(grants: Grants, **settings: object) -> Authorizer:
    values = {"enabled": True, "superusers": ("root",), "proxies": ("proxy",), **settings}
    return Authorizer(AuthorizationSettings(**values), grants)  # type: ignore[arg-type]


@pytest.fixture
def grants() -> Grants:
    return Grants()


def test_superusers_and_administrators_may_do_everything_in_a_tenant(grants: Grants) -> None:
    rights = authorizer(grants)
    for role in ("root", "boss"):
        who = Principal(role)
        assert rights.may_produce(who, TOPIC)
        assert rights.may_consume(who, TOPIC, "s")
        assert rights.may_list_topics(who, "t/n")
        assert rights.administers(who, "t")
    assert not rights.administers(Principal("boss"), "other")
    assert rights.is_superuser(Principal("root"))
    assert not rights.is_superuser(Principal("boss"))


def test_client_without_a_role_has_no_right(grants: Grants) -> None:
    grants.granted = grants.granted.grant("*", list(Action))
    rights = authorizer(grants, wildcards=True)
    assert not rights.may_look_up(NOBODY, TOPIC)
    assert not rights.is_superuser(NOBODY)


def test_every_client_has_every_right_without_authorization(grants: Grants) -> None:
    rights = authorizer(grants, enabled=False)
    assert rights.may_produce(NOBODY, TOPIC)
    assert rights.is_superuser(NOBODY)
    assert rights.connection_fault(Principal("proxy")) is None


def test_either_action_allows_a_lookup_and_only_its_own_kind_of_client(grants: Grants) -> None:
    grants.granted = grants.granted.grant("p", [Action.PRODUCE]).grant("c", [Action.CONSUME])
    rights = authorizer(grants)
    producer, consumer = Principal("p"), Principal("c")
    for who in (producer, consumer):
        assert rights.may_look_up(who, TOPIC)
        assert rights.may_list_topics(who, "t/n")
        assert not rights.administers(who, "t")
    assert rights.may_produce(producer, TOPIC)
    assert not rights.may_consume(producer, TOPIC)
    assert rights.may_consume(consumer, TOPIC)
    assert not rights.may_produce(consumer, TOPIC)


def test_grant_on_a_topic_holds_for_its_partitions_only(grants: Grants) -> None:
    grants.granted = grants.granted.grant_on_topics([str(TOPIC)], "r", [Action.PRODUCE])
    rights, who = authorizer(grants), Principal("r")
    assert rights.may_produce(who, TOPIC)
    assert rights.may_produce(who, PARTITION)
    assert not rights.may_produce(who, parse_topic_name("persistent://t/n/b"))
    assert not rights.may_produce(who, parse_topic_name("non-persistent://t/n/a"))
    assert not rights.may_list_topics(who, "t/n")


def test_only_administrators_publish_events_of_topic_policies(grants: Grants) -> None:
    """Such an event sets policies, which a right to publish does not allow."""
    grants.granted = grants.granted.grant("r", [Action.PRODUCE])
    rights = authorizer(grants)
    for name in ("__change_events", "__change_events-partition-0"):
        events = parse_topic_name(f"persistent://t/n/{name}")
        assert not rights.may_produce(Principal("r"), events)
        assert rights.may_look_up(Principal("r"), events)
        assert rights.may_produce(Principal("boss"), events)


def test_subscription_is_kept_for_the_roles_that_were_granted_it(grants: Grants) -> None:
    grants.granted = (
        grants.granted.grant("a", [Action.CONSUME])
        .grant("b", [Action.CONSUME])
        .grant_on_subscription("s", ["a"])
    )
    rights = authorizer(grants)
    assert rights.may_consume(Principal("a"), TOPIC, "s")
    assert not rights.may_consume(Principal("b"), TOPIC, "s")
    assert rights.may_consume(Principal("b"), TOPIC, "other")


def test_prefix_mode_binds_subscriptions_to_the_role(grants: Grants) -> None:
    grants.granted, grants.prefix = grants.granted.grant("app", [Action.CONSUME]), True
    rights = authorizer(grants)
    assert rights.may_consume(Principal("app"), TOPIC, "app-1")
    assert not rights.may_consume(Principal("app"), TOPIC, "s")
    assert rights.may_consume(Principal("boss"), TOPIC, "s")


def test_patterns_count_only_when_they_are_switched_on(grants: Grants) -> None:
    grants.granted = grants.granted.grant("app-*", [Action.PRODUCE])
    assert authorizer(grants, wildcards=True).may_produce(Principal("app-1"), TOPIC)
    assert not authorizer(grants).may_produce(Principal("app-1"), TOPIC)


def test_unknown_namespace_has_no_rights(grants: Grants) -> None:
    assert not authorizer(grants).may_produce(Principal("r"), parse_topic_name("persistent://t/x/a"))


def test_proxy_and_its_client_both_need_the_right(grants: Grants) -> None:
    grants.granted = grants.granted.grant("p", [Action.PRODUCE])
    rights = authorizer(grants)
    assert not rights.may_produce(Principal("proxy", "p"), TOPIC)
    grants.granted = grants.granted.grant("proxy", [Action.PRODUCE])
    assert rights.may_produce(Principal("proxy", "p"), TOPIC)
    assert not rights.may_produce(Principal("proxy", "stranger"), TOPIC)
    assert not rights.may_produce(Principal("proxy"), TOPIC)
    assert not rights.is_superuser(Principal("proxy", "root"))


@pytest.mark.parametrize(
    ("role", "original", "valid"),
    [
        ("proxy", "client", True),
        ("proxy", None, False),
        ("proxy", " ", False),
        ("proxy", "proxy", False),
        ("client", None, True),
        ("client", "root", False),
        ("client", "client", False),
    ],
)
def test_only_proxies_name_an_original_role(role: str, original: str | None, valid: bool) -> None:
    assert (original_fault(Principal(role, original), ("proxy",)) is None) is valid


@pytest.mark.parametrize("enabled", [True, False])
def test_role_of_a_client_is_the_original_one_only_on_the_word_of_a_proxy(
    grants: Grants, enabled: bool
) -> None:
    decide = authorizer(grants, enabled=enabled, proxies=("proxy",))
    assert decide.client_role(Principal("proxy", "alice")) == "alice"
    assert decide.client_role(Principal("mallory", "alice")) == "mallory"
    assert decide.client_role(Principal("alice")) == "alice"
    assert decide.client_role(NOBODY) is None


def test_client_may_name_itself_over_http() -> None:
    assert original_fault(Principal("client", "client"), ("proxy",), own_name_allowed=True) is None


def test_changed_settings_act_at_the_next_decision(grants: Grants) -> None:
    rights = authorizer(grants)
    rights.reconfigure(AuthorizationSettings(enabled=True, superusers=("new",), proxies=()))
    assert rights.is_superuser(Principal("new"))
    assert not rights.is_superuser(Principal("root"))
