"""Bundles: the parts into which a namespace divides the range of its topics' hashes. Pure functions and values.

Where several brokers share a store, each bundle has an owner (`broker/cluster`); one broker alone serves all of them. A
topic's hash is the CRC-32 of its full name, as in Pulsar.
"""

from __future__ import annotations

import re
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from broker.service.namespaces.namespaces import Json, Namespaces
from broker.service.namespaces.stored_forms import BUNDLES_KEY
from foundation.model.errors import BrokerError

BUNDLES: Final = 4
"""Bundles of a namespace that was created without a number of them; Pulsar's default."""
BUNDLES_MAX: Final = 10_000
"""Bundles of one namespace. Pulsar has no limit below 2**31; each GET of the namespace lists them all."""
HASH_MAX: Final = 0xFFFFFFFF
"""The largest hash, which belongs to the last bundle."""
TOPICS_PER_SLICE: Final = 1_000
"""Topics whose bundles are found between two pauses: about 1 ms."""
_RANGE: Final = re.compile(r"(0x[0-9a-fA-F]{8})_(0x[0-9a-fA-F]{8})")


class BundleRefused(BrokerError):
    """The range is no bundle of the namespace, or it cannot be split so."""

    status = 412
    """HTTP status of the answer."""


class BoundariesRefused(BrokerError):
    """The boundaries of a new namespace do not divide the whole range."""

    status = 400
    """HTTP status of the answer."""


def bundles_of(namespaces: Namespaces, namespace: str) -> Bundles:
    """Returns the bundles of a namespace. NamespaceNotFound for an unknown one."""
    namespaces.policies(namespace)  # Raises NamespaceNotFound.
    return Bundles.stored(namespaces.policy(namespace, BUNDLES_KEY))


class KnownBundles:
    """The bundles of namespaces, parsed once for each change: 2,000 boundaries take 0.14 ms, and each lookup needs them."""

    def __init__(self, namespaces: Namespaces) -> None:
        self._namespaces = namespaces
        self._known: dict[str, tuple[Json, Bundles]] = {}
        """By namespace, with the stored policy that they were parsed from. A change stores another object."""

    def of(self, namespace: str) -> Bundles:
        """Returns the bundles of a namespace, as `bundles_of`. NamespaceNotFound for an unknown one."""
        stored = self._namespaces.policy(namespace, BUNDLES_KEY)
        known = self._known.get(namespace)
        # A namespace that was deleted has no policy, and one without the policy is not worth a place here.
        if known is not None and stored is known[0]:
            return known[1]
        self._known.pop(namespace, None)
        found = bundles_of(self._namespaces, namespace)
        if stored is not None:
            self._known[namespace] = stored, found
        return found


class OwnedBundles:
    """The bundles that have topics in use, found in slices because a broker may have 100,000 topics."""

    def __init__(self) -> None:
        self._bundles: dict[str, Bundles] = {}
        self._found: dict[str, set[int]] = {}

    def add(self, namespace: str, bundles: Bundles, topics: Iterable[str]) -> Iterator[None]:
        """Adds the bundles of these topics of a namespace, by full name; yields after each slice of them.

        Ends as soon as every bundle of the namespace is found: nearly always after some dozens of topics.
        """
        self._bundles[namespace] = bundles
        found = self._found.setdefault(namespace, set())
        for number, topic in enumerate(topics, 1):
            if len(found) == len(bundles.boundaries) - 1:
                return
            found.add(bundles.index_of(topic))
            if number % TOPICS_PER_SLICE == 0:
                yield

    def __len__(self) -> int:
        return sum(map(len, self._found.values()))

    def names(self) -> list[str]:
        """Returns the bundles as `tenant/namespace/range`."""
        return [
            f"{namespace}/{self._bundles[namespace].all()[index]}"
            for namespace, indexes in sorted(self._found.items())
            for index in sorted(indexes)
        ]


def middle_of(hashes: Iterable[int]) -> int | None:
    """Returns the hash with as many topics before it as after it, from theirs; None for fewer than two topics."""
    ordered = sorted(hashes)
    if len(ordered) < 2:
        return None
    before, after = ordered[len(ordered) // 2 - 1], ordered[len(ordered) // 2]
    return before + (after - before) // 2


class BundleRates(NamedTuple):
    """Messages and bytes per second, in both directions together."""

    messages: float = 0.0
    """Messages per second."""
    throughput: float = 0.0
    """Bytes per second."""

    def __add__(self, other: BundleRates) -> BundleRates:  # type: ignore[override]  # a sum, and no longer tuple
        """Returns the sum."""
        return BundleRates(self.messages + other.messages, self.throughput + other.throughput)

    def exceeds(self, most: BundleRates) -> bool:
        """Returns True where one of the two is greater than that of `most`."""
        return self.messages > most.messages or self.throughput > most.throughput


def hashes_by_rates(rates: Mapping[int, BundleRates], most: BundleRates, difference: float) -> list[int]:
    """Returns the hashes that divide topics so that no part exceeds `most`, but for single topics.

    `rates`: of topics by their hashes. None where the topics together exceed `most` by less than its part `difference`.
    """
    busy = {key: one for key, one in rates.items() if one.messages > 0 or one.throughput > 0}
    total = sum(busy.values(), BundleRates())
    more = 1 + difference
    least = BundleRates(most.messages * more, most.throughput * more)
    if len(busy) < 2 or (total.messages < least.messages and total.throughput < least.throughput):
        return []
    first, *others = sorted(busy)
    found, part, before = [], busy[first], first
    for key in others:
        if (part + busy[key]).exceeds(most):
            found.append(before + (key - before) // 2 + 1)
            part = busy[key]
        else:
            part += busy[key]
        before = key
    return found


def hash_of(topic: str) -> int:
    """Returns the hash of a topic or partition by its full name."""
    return zlib.crc32(topic.encode())


def topic_with_hash(namespace: str, wanted: int) -> str:
    """Returns the full name of a topic of the namespace that has the hash; it need not exist.

    32 letters are `a` or `c`. Each `c` flips the same bits of a CRC-32 whatever the others are, and no letter flips what
    others do together, so one choice of letters has any given hash.
    """
    start, count = f"persistent://{namespace}/", 32
    unflipped = hash_of(start + "a" * count)
    rest = wanted ^ unflipped
    flips: dict[int, tuple[int, int]] = {}
    # By its highest bit, what some letters flip together, and which letters these are.
    for place in range(count):
        flipped = hash_of(start + "a" * place + "c" + "a" * (count - place - 1))
        bits, letters = flipped ^ unflipped, 1 << place
        while bits.bit_length() in flips:
            others, more = flips[bits.bit_length()]
            bits, letters = bits ^ others, letters ^ more
        flips[bits.bit_length()] = bits, letters
    chosen = 0
    while rest:
        bits, letters = flips[rest.bit_length()]
        rest, chosen = rest ^ bits, chosen ^ letters
    return start + "".join("c" if chosen >> place & 1 else "a" for place in range(count))


@dataclass(frozen=True, slots=True)
class Bundle:
    """A part of the range of hashes."""

    low: int
    """The smallest hash."""
    high: int
    """The hash after the largest one; HASH_MAX itself in the last bundle."""

    def __str__(self) -> str:
        return f"0x{self.low:08x}_0x{self.high:08x}"

    @staticmethod
    def parsed(text: str) -> Bundle:
        """Returns the part with this range. Raises BundleRefused in Pulsar's words."""
        match = _RANGE.fullmatch(text)
        if match is None:
            raise BundleRefused(f"Invalid bundle range: {text}")
        return Bundle(int(match[1], 16), int(match[2], 16))

    def has(self, topic: str) -> bool:
        """Returns True for a topic of the bundle."""
        value = hash_of(topic)
        return self.low <= value < self.high or value == self.high == HASH_MAX

    def middle(self) -> int:
        """Returns the hash that divides the bundle into two of one size (`range_equally_divide`)."""
        return self.low + (self.high - self.low) // 2


@dataclass(frozen=True, slots=True)
class Bundles:
    """All bundles of a namespace."""

    boundaries: tuple[int, ...]
    """The first hash of each bundle, and HASH_MAX at the end."""

    @staticmethod
    def equal(count: int) -> Bundles:
        """Returns bundles of one size."""
        return Bundles((*((index << 32) // count for index in range(count)), HASH_MAX))

    @staticmethod
    def stored(stored: Json) -> Bundles:
        """Returns the bundles of the stored policy of a namespace; None = none is stored."""
        if not isinstance(stored, dict):
            return Bundles.equal(BUNDLES)
        texts = stored.get("boundaries")
        if isinstance(texts, list):
            return Bundles(tuple(int(str(text), 16) for text in texts))
        count = stored.get("numBundles")
        # Stored by an older version perhaps, which kept any number.
        usable = isinstance(count, int) and 0 < count <= BUNDLES_MAX
        return Bundles.equal(count if usable and isinstance(count, int) else BUNDLES)

    @staticmethod
    def checked(boundaries: Sequence[str]) -> Bundles:
        """Returns bundles for the boundaries of a request. Raises BoundariesRefused."""
        if not all(re.fullmatch("0x[0-9a-fA-F]{8}", text) for text in boundaries) or len(boundaries) < 2:
            raise BoundariesRefused("boundaries must be two or more texts such as 0x00000000")
        values = tuple(sorted({int(text, 16) for text in boundaries}))
        if len(values) > BUNDLES_MAX + 1:
            raise BoundariesRefused(f"{len(values) - 1} bundles: at most {BUNDLES_MAX} are allowed")
        if values[0] != 0 or values[-1] != HASH_MAX:
            raise BoundariesRefused(
                "Input bundles do not cover the whole hash range."
                f" first:0x{values[0]:08x}, last:0x{values[-1]:08x}"
            )
        return Bundles(values)

    def json(self) -> dict[str, Json]:
        """Returns Pulsar's JSON, for the store and for answers."""
        return {
            "boundaries": [f"0x{value:08x}" for value in self.boundaries],
            "numBundles": len(self.boundaries) - 1,
        }

    def all(self) -> list[Bundle]:
        """Returns the bundles in order."""
        return [Bundle(*pair) for pair in zip(self.boundaries, self.boundaries[1:], strict=False)]

    def __contains__(self, text: str) -> bool:
        """Returns True for the range of one of the bundles."""
        match = _RANGE.fullmatch(text)
        if match is None:
            return False
        low, high = int(match[1], 16), int(match[2], 16)
        index = bisect_left(self.boundaries, low, hi=len(self.boundaries) - 1)
        return self.boundaries[index : index + 2] == (low, high)

    def overlapping(self, part: Bundle) -> list[Bundle]:
        """Returns the bundles that have hashes of this part, in order."""
        first = bisect_right(self.boundaries, part.low) - 1
        last = bisect_left(self.boundaries, part.high)
        return [Bundle(*pair) for pair in pairwise(self.boundaries[first : last + 1])]

    def of(self, topic: str) -> Bundle:
        """Returns the bundle of a topic."""
        index = self.index_of(topic)
        return Bundle(self.boundaries[index], self.boundaries[index + 1])

    def index_of(self, topic: str) -> int:
        """Returns the place of that bundle among all."""
        return min(bisect_right(self.boundaries, hash_of(topic)), len(self.boundaries) - 1) - 1

    def find(self, namespace: str, text: str) -> Bundle:
        """Returns the bundle with this range. Raises BundleRefused in Pulsar's words."""
        asked = Bundle.parsed(text)
        found = next((bundle for bundle in self.all() if bundle.low == asked.low), None)
        if found is None:
            raise BundleRefused(f"Cannot find bundle {namespace}/{text} in the bundles list")
        if found.high != asked.high:
            raise BundleRefused(
                f"Invalid upper boundary for bundle {namespace}/{text}."
                f" Expected upper boundary of {namespace}/{found}"
            )
        return found

    def split(self, bundle: Bundle, at: Sequence[int]) -> Bundles:
        """Returns the bundles with `bundle` divided at these hashes. Raises BundleRefused for one outside of it."""
        outside = [value for value in at if not bundle.low < value < bundle.high]
        if outside:
            raise BundleRefused(f"Position {outside[0]} is not inside of the bundle {bundle}")
        boundaries = tuple(sorted({*self.boundaries, *at}))
        if len(boundaries) > BUNDLES_MAX + 1:
            raise BundleRefused(f"{len(boundaries) - 1} bundles: at most {BUNDLES_MAX} are allowed")
        return Bundles(boundaries)
