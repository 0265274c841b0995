"""CopyPace: the limit on the bytes that a worker copies in a second. Pure."""

from __future__ import annotations

from foundation.units import NS_PER_SECOND


class CopyPace:
    """Spreads bytes over time.

    A batch is taken whole, and the next one waits until the bytes of the former have had their time.
    """

    def __init__(self, bytes_per_s: int) -> None:
        """`bytes_per_s` 0 or less sets no limit."""
        self._bytes_per_s = bytes_per_s
        self._free_ns = 0
        """The time at which the next batch may begin."""

    def wait_ns(self, size: int, now_ns: int) -> int:
        """Takes `size` bytes; returns the nanoseconds to wait before they are read."""
        if self._bytes_per_s <= 0:
            return 0
        begins_ns = max(self._free_ns, now_ns)
        self._free_ns = begins_ns + size * NS_PER_SECOND // self._bytes_per_s
        return begins_ns - now_ns
