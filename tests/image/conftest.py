"""The image, built once for the tests that need it; they are skipped with the reason without a Docker Engine."""

from __future__ import annotations

import pytest

from tests.compose.__main__ import IMAGE, build, missing_engine


@pytest.fixture(scope="session")
def image() -> str:
    reason = missing_engine()
    if reason is not None:
        pytest.skip(reason)
    build()
    return IMAGE
