"""Isolation policies that another program has stored, with values that cannot be read."""

from __future__ import annotations

import pytest

from broker.cluster.isolation import fault_of, faults_for, faults_of, permitted, status_of
from foundation.value import Json

JAVA = "(?!b).*"
"""A pattern that Java reads and RE2 does not."""
BROKERS = ("a:1", "b:1", "c:1")


def policy(**changes: Json) -> dict[str, Json]:
    failover: Json = {"policy_type": "min_available", "parameters": {"min_limit": "1"}}
    return {
        "namespaces": ["shop/.*"],
        "primary": ["a"],
        "secondary": ["c"],
        "auto_failover_policy": failover,
        **changes,
    }


@pytest.mark.parametrize(
    ("changes", "shop", "others"),
    [
        ({}, {"a:1"}, {"b:1", "c:1"}),
        # The broker stays reserved; which namespaces it is for is unknown.
        ({"namespaces": [JAVA]}, {"b:1", "c:1"}, {"b:1", "c:1"}),
        ({"namespaces": [JAVA, "shop/.*"]}, {"a:1"}, {"b:1", "c:1"}),
        ({"primary": [JAVA, "a"]}, {"a:1"}, {"b:1", "c:1"}),
        ({"primary": [JAVA]}, {"c:1"}, {"a:1", "b:1", "c:1"}),
        ({"primary": [JAVA], "secondary": [JAVA]}, set(), {"a:1", "b:1", "c:1"}),
        ({"primary": "a", "secondary": None}, set(), {"a:1", "b:1", "c:1"}),
    ],
    # A set's own text has another order in each worker.
    ids=lambda value: str(sorted(value) if isinstance(value, set) else value),
)
def test_pattern_that_cannot_be_read_fits_nothing(
    changes: dict[str, Json], shop: set[str], others: set[str]
) -> None:
    policies: dict[str, Json] = {"text": "x", "p": policy(**changes)}
    assert permitted("shop/a", BROKERS, policies) == shop
    assert permitted("other/a", BROKERS, policies) == others
    assert status_of("other/a", "a:1", policies)["is_controlled"] is False


def test_faults_name_policy_value_and_remedy() -> None:
    policies: dict[str, Json] = {
        "fine": policy(),
        "apache": policy(
            namespaces=[JAVA, 1], primary="a", auto_failover_policy={"parameters": {"min_limit": "²"}}
        ),
        "line\nbreak": [],
    }
    assert list(faults_of(policies)) == [
        f"isolation policy {name}: {fault}; set the policy anew (ns-isolation-policy set), or delete it"
        for name, fault in (
            (
                "'apache'",
                "namespaces has the pattern '(?!b).*', which cannot be read (invalid perl operator: (?!) and fits nothing",
            ),
            (
                "'apache'",
                "namespaces has the pattern 1, which cannot be read (it is no text) and fits nothing",
            ),
            ("'apache'", "primary='a' is no list of patterns, and fits nothing"),
            ("'apache'", "min_limit='\\xb2' is no whole number, and counts as 0"),
            ("'line\\nbreak'", "[] is no object, and is not obeyed"),
        )
    ]


def test_faults_for_a_namespace_are_those_of_its_policy() -> None:
    policies: dict[str, Json] = {"one": policy(namespaces=[JAVA]), "two": policy(primary=[JAVA])}
    assert "isolation policy 'two'" in faults_for("shop/a", policies)
    assert "isolation policy 'one'" not in faults_for("shop/a", policies)
    assert faults_for("other/a", policies) == ""


@pytest.mark.parametrize("pattern", [JAVA, "(", "\ud800", "x{1000}{1000}"], ids=ascii)
def test_fault_of_a_pattern_says_why(pattern: str) -> None:
    assert fault_of(pattern)


def test_fault_of_a_pattern_that_can_be_read_is_none() -> None:
    assert fault_of("shop/.*") is None


@pytest.mark.parametrize(
    ("least", "expected"), [(1, {"c:1"}), ("1", {"c:1"}), ("9" * 5000, set()), (True, set())], ids=str
)
def test_least_number_of_primary_brokers_may_be_a_number(least: Json, expected: set[str]) -> None:
    found = policy(primary=["none"], auto_failover_policy={"parameters": {"min_limit": least}})
    assert permitted("shop/a", BROKERS, {"p": found}) == expected
