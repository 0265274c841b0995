"""The groups and the order of tests where pytest has several workers (`make test`).

A file's tests stay together, since they share a broker. Tests with Spark are three groups, because a session takes seconds
to start, and as long again until Java has compiled its code. The house rules are one, because each worker that checks some
parses all modules. The longest groups begin, so that no worker ends alone.
"""

from __future__ import annotations

from typing import Final

from xdist.scheduler import LoadScopeScheduling

SPARK_SOURCE: Final = (
    "tests/pyspark_pulsar/",
    "tests/pipeline/jobs/test_hit_report.py",
    "tests/pipeline/jobs/test_on_the_sample.py",
)
"""Folders and files whose tests ask for the fixture `spark`, and read or write topics with it; and the few jobs that
`make test` runs, in the same session."""
SPARK_JOBS: Final = (
    "tests/pipeline/jobs/test_budget.py",
    "tests/pipeline/jobs/test_history.py",
    "tests/pipeline/jobs/test_lateness.py",
    "tests/pipeline/jobs/test_thrashing.py",
    "tests/pipeline/audits/",
    "tests/pipeline/live/",
    "tests/pipeline/test_remote_paths.py",
    "tests/pipeline/test_task_progress.py",
)
"""Folders and files whose tests ask for the fixture `spark`, and run jobs with it; these tests are slow."""
SPARK_PEERS: Final = ("tests/pipeline/jobs/test_pages_in_browser.py", "tests/interop/test_recommendation.py")
"""The same with a browser, or with minutes of load: together with the others, one worker would end alone."""
GROUPS: Final = {
    "spark jobs": SPARK_JOBS,
    "spark source": SPARK_SOURCE,
    "spark peers": SPARK_PEERS,
    "house rules": ("tests/tidy/",),
}
"""The groups of more than one file."""
LONG: Final = (
    "spark peers",
    "spark jobs",
    "spark source",
    "tests/pipeline/cluster/",
    "tests/exactly_once/test_exactly_once.py",
    "tests/test_wire_vectors.py",
    "tests/test_rest_vectors.py",
    "tests/bookie_stub/apache/test_java_client.py",
    "tests/console/",
    "tests/interop/",
    "tests/crash/",
    "tests/sim/",
    "tests/fuzz/",
    "tests/bookie_stub/",
    "tests/magnetar/",
    "tests/compose/",
    "tests/pipeline/",
    "tests/test_cachesim_vectors.py",
    "tests/test_decision_vectors.py",
    "house rules",
    "tests/bench/",
    "tests/entry_cache/",
    "tests/bookkeeper/metadata/",
)
"""Groups, files and folders in the order in which they begin; all others come last."""


class FilesAndSpark(LoadScopeScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """Gives an idle worker the next file, or the next group of tests with Spark."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


def group_of(nodeid: str) -> str:
    return next(
        (name for name, places in GROUPS.items() if nodeid.startswith(places)), nodeid.partition("::")[0]
    )


def place_of(nodeid: str) -> int:
    """Returns the place in the order: a test with a smaller one begins earlier."""
    group = group_of(nodeid)
    return next((place for place, name in enumerate(LONG) if group.startswith(name)), len(LONG))
