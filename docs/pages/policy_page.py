"""Makes `docs/reference/policies.md` from the table of policies; `generate.py` writes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from broker.service.namespaces.stored_forms import LOCAL
from broker.service.policies.table import POLICIES, Policy, Rest

INTRODUCTION = """\
# Policies of namespaces and topics

Written by `make generate` from the table of policies in `broker/service/policies/table.py`.

A policy is set on a namespace or on a topic with Pulsar's own tools and requests. Of several values the narrowest
holds: the topic's own, the topic's global one, the namespace's, the broker's setting. A change acts at once on topics
that are open and on clients that are connected. A partition has the policies of its partitioned topic. A deleted
topic or namespace loses its policies.

Paths are below `/admin/v2/namespaces/TENANT/NAMESPACE/` and `/admin/v2/persistent/TENANT/NAMESPACE/TOPIC/`, or
`non-persistent` in its place. `GET` reads, `POST` or `PUT` sets and `DELETE` removes; for topics two parameters
exist:

* `applied=true` answers with the value in force where the topic has none of its own.
* `isGlobal=true` reads and sets the topic's global policy. It holds where the topic has no local one; there is no
  other cluster to copy it to.

| answer | reason |
|---|---|
| 400 | the body is no JSON, or JSON of another type; numbers beyond Java's type count as such |
| 404 | the namespace or topic does not exist |
| 405 | `topicLevelPoliciesEnabled` is false, or the policy has no such request |
| 412 | the value is out of range; a policy of a single partition; `DELETE` of a namespace's policy that has none |

A refused request changes nothing. `null` as a value removes the policy.
"""


def policies_page() -> str:
    """Returns the page with every policy of the table."""
    return "\n".join(
        [
            INTRODUCTION,
            "## Policies\n",
            "| policy | namespace | topic | value | broker's setting | effect |\n|---|---|---|---|---|---|",
            *(_row(policy) for policy in POLICIES),
            "",
            "## Names in the metadata store\n",
            "Policies of a namespace are one JSON object below `/admin/policies`, those of a topic one below",
            "`/admin/topic-policies`. A global policy of a topic has `global:` before its key. On ZooKeeper policies",
            "of topics are [events](../compatibility.md#topic-policies-as-events) in `__change_events`, all but",
            "`unackedHoleRedelivery`.",
            f"Rates of a namespace are maps from clusters to rates. {_local_keys()} stand below",
            "`/admin/local-policies`, the bundles from the first split on.\n",
            "| policy | key of a namespace | key of a topic |\n|---|---|---|",
            *(
                f"| {policy.title} | {_code(policy.name)} | {_code(policy.topic_name)} |"
                for policy in POLICIES
            ),
            "",
        ]
    )


def _local_keys() -> str:
    return ", ".join(_code(key) for key in sorted(LOCAL))


def _row(policy: Policy[Any]) -> str:
    cells = (
        policy.title,
        _word(policy.namespace),
        _word(policy.topic),
        policy.form.words,
        _code(policy.key),
        policy.acts,
    )
    return f"| {' | '.join(cells)} |"


def _word(rest: Rest | None) -> str:
    return "" if rest is None else " ".join(_parts(rest))


def _parts(rest: Rest) -> Iterator[str]:
    yield f"`{rest.word}?{rest.word}=N`" if rest.in_query else f"`{rest.word}`"
    if rest.bodiless:
        yield "without a body"
    if rest.verb != "POST":
        yield rest.verb


def _code(name: str) -> str:
    return f"`{name}`" if name else ""
