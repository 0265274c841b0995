"""The inputs of all broker lifetimes of a record, for the replays of one job.

Spark keeps a sample of them on its disk, so that a job reads the files once, however often it replays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import zip_longest
from typing import TypeAlias, TypeVar

from pyspark import RDD, Broadcast, StorageLevel
from pyspark.sql import SparkSession

from broker.recorder.record_reader import BrokerLifetime
from pipeline.replays.inputs import InputBatch, fewer, moves_rate_of, read_inputs
from pipeline.task_progress import collected

_Answer = TypeVar("_Answer")
ReplayFunction: TypeAlias = Callable[[BrokerLifetime, list[InputBatch], float], Iterable[_Answer]]
"""The work of a task on one lifetime's inputs: lifetime, inputs, and their share of the entries."""


class RecordInputs:
    """The inputs of some broker lifetimes, or of a sample of their entries."""

    def __init__(
        self,
        spark: SparkSession,
        lifetimes: Sequence[BrokerLifetime],
        rate: float = 1.0,
        object_rate: float | None = None,
    ) -> None:
        """`rate`: the share of the entries, above 0 and at most 1.

        `object_rate`: the largest share that the broker's objects will replay, 0 for machine code alone; None = all of these
        inputs. The objects need more moves of cursors (`inputs.MOVES_PER_ENTRY`), so a sample for them is larger.
        """
        moves_rate = max(rate, moves_rate_of(rate if object_rate is None else object_rate))
        self.lifetimes = lifetimes
        """In the order of the answers."""
        self.rate = rate
        """The share of the entries."""
        self._spark = spark
        self._shared = spark.sparkContext.broadcast(list(lifetimes))
        # A partition for each lifetime, since its events have one order.
        read = spark.sparkContext.parallelize(list(lifetimes), len(lifetimes)).flatMap(
            partial(read_inputs, rate=rate, moves_rate=moves_rate)
        )
        # The whole record would take several times its size on disk, so it is read again for each replay.
        self._batches: RDD[InputBatch] = read.persist(StorageLevel.DISK_ONLY) if rate < 1 else read

    @property
    def parallelism(self) -> int:
        """The number of tasks that run at once."""
        return self._spark.sparkContext.defaultParallelism

    def replayed(
        self,
        replays: Sequence[Sequence[ReplayFunction[_Answer]]],
        rate: float,
        say: Callable[[str], None],
        *,
        by_objects: bool = False,
    ) -> list[_Answer]:
        """Returns the answers of one task for each replay, in any order.

        `replays`: by lifetime. `rate`: a share of the entries, at most that of these inputs. `say` is called with the
        number of finished tasks. `by_objects`: the broker's objects take part. An error of a task is raised as Spark's.
        """
        share = min(rate, self.rate)
        shares = share, moves_rate_of(share) if by_objects else share
        rounds = [
            self._batches.mapPartitionsWithIndex(partial(_replay, self._shared, shares, one))
            for one in zip_longest(*replays)
        ]
        return collected(self._spark, self._spark.sparkContext.union(rounds), say)


def _replay(
    shared: Broadcast[list[BrokerLifetime]],
    shares: tuple[float, float],
    replays: Sequence[ReplayFunction[_Answer] | None],
    index: int,
    batches: Iterator[InputBatch],
) -> Iterable[_Answer]:
    """Does the work of a lifetime; without any if other lifetimes have more tasks.

    `shares`: `rate` and `moves_rate` of `inputs.fewer`.
    """
    replay, lifetime = replays[index], shared.value[index]
    if replay is not None:
        yield from replay(lifetime, [fewer(lifetime, batch, *shares) for batch in batches], shares[0])
