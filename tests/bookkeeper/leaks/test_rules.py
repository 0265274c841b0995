"""The rules of leaks, one fact at a time. Both audits apply them to whole clusters in their own tests."""

from __future__ import annotations

import pytest

from bookkeeper.leaks.rules import (
    JUDGED,
    NO_PERSISTENT_TOPIC,
    NodeFacts,
    is_old_enough,
    is_owned,
    judge_node,
    judge_unreferenced,
    must_exist,
)


def node(kind: str, **facts: bool) -> NodeFacts:
    """A node that is needed, but for the facts given."""
    needed = NodeFacts(
        kind=kind,
        persistent=True,
        topic_exists=True,
        beyond_partitions=False,
        has_namespace=True,
        has_tenant=True,
        broker_gone=False,
        of_brokers=False,
        empty=False,
        being_deleted=False,
    )
    return needed._replace(**facts)  # type: ignore[arg-type]  # mypy takes them for the kind


@pytest.mark.parametrize("kind", [kind for kind in JUDGED if kind != "deletion"])
def test_needed_node_is_no_leak(kind: str) -> None:
    assert judge_node(node(kind)) is None


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (node("namespace", has_tenant=False), "its tenant does not exist"),
        (node("cursor", has_namespace=False), "its namespace does not exist"),
        (node("local-policies", has_namespace=False), "its namespace does not exist"),
        (node("cursor", beyond_partitions=True), "it is a partition that its topic does not have"),
        (node("cursor", topic_exists=False), "its topic does not exist"),
        (node("schema", topic_exists=False), NO_PERSISTENT_TOPIC),
        (node("bundle-owner", broker_gone=True), "it is a broker's own, and no such broker is registered"),
        (node("parent", empty=True), "nothing is left below it"),
    ],
    ids=str,
)
def test_left_over_node_is_named_unless_its_deletion_goes_on(found: NodeFacts, reason: str) -> None:
    assert judge_node(found) == reason
    assert judge_node(found._replace(being_deleted=True)) is None


@pytest.mark.parametrize(
    "found",
    [
        node("cursor", has_namespace=False, of_brokers=True),
        node("schema", topic_exists=False, of_brokers=True),
        node("cursor", topic_exists=False, persistent=False),
        node("managed-ledger", topic_exists=False),
    ],
    ids=str,
)
def test_node_whose_owner_leaves_no_trace_is_spared(found: NodeFacts) -> None:
    assert judge_node(found) is None


def test_unfinished_deletion_is_told_while_it_goes_on() -> None:
    found = judge_node(node("deletion", being_deleted=True))
    assert found is not None
    assert "is not finished" in found


@pytest.mark.parametrize(
    ("decided", "of_pulsar", "kind"),
    [(True, True, "deletion-unfinished"), (False, True, "orphan"), (False, False, "unknown-owner")],
)
def test_ledger_that_nothing_needs_has_a_kind(decided: bool, of_pulsar: bool, kind: str) -> None:
    assert judge_unreferenced(decided=decided, of_pulsar=of_pulsar).kind == kind


@pytest.mark.parametrize(("at_ms", "old"), [(None, True), (5_000, True), (5_001, False)])
def test_node_younger_than_the_grace_is_spared(at_ms: int | None, old: bool) -> None:
    assert is_old_enough(at_ms, 15_000, 10) is old


@pytest.mark.parametrize(
    ("application", "component", "owned"),
    [("pulsar", "schema", True), ("pulsar", "other", False), ("other", "schema", False), (None, None, False)],
)
def test_ledger_is_owned_by_known_components_of_pulsar(
    application: str | None, component: str | None, owned: bool
) -> None:
    assert is_owned(application, component) is owned


@pytest.mark.parametrize(
    ("reference", "closed_with_entries", "must"),
    [
        ("cursor", False, True),
        ("managed-ledger", True, True),
        ("managed-ledger", False, False),
        ("beside", True, False),
        ("deleting", True, False),
    ],
)
def test_reference_may_point_at_an_absent_ledger(
    reference: str, closed_with_entries: bool, must: bool
) -> None:
    assert must_exist(reference=reference, closed_with_entries=closed_with_entries) is must
