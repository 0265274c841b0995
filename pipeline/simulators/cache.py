"""What every simulated cache offers: one method that takes a request and answers hit or miss."""

from __future__ import annotations

from abc import ABC, abstractmethod


class Cache(ABC):
    """An eviction policy with its contents. Sizes and capacity have one unit: bytes, or 1 for each object.

    An object keeps the size with which it was inserted. Objects that the policy can never hold are misses
    and change nothing else.
    """

    capacity_min = 1
    """Below this a policy cannot form its parts."""

    def __init__(self, capacity: int) -> None:
        if capacity < self.capacity_min:
            raise ValueError(
                f"{type(self).__name__} cannot work with a capacity of {capacity}: give it {self.capacity_min} or more"
            )
        self.capacity = capacity

    @property
    @abstractmethod
    def used(self) -> int:
        """The sizes of all objects that would be hits, never above the capacity."""

    @abstractmethod
    def access(self, key: int, size: int = 1) -> bool:
        """One request; True for a hit. `size` is positive and matters for a miss only."""
