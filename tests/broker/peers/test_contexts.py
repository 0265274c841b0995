"""TLS contexts towards other brokers: one for all that ask together, and a new one when files have changed."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from unittest.mock import patch

import pytest

from broker.peers import contexts as contexts_module
from broker.peers.contexts import PeerContexts
from foundation.tls.contexts import ClientFiles, client_context
from foundation.tls.errors import TlsError
from tests.support.certificates import Certificates, put_over


@pytest.fixture
def made(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


@pytest.fixture
def files(made: Certificates) -> ClientFiles:
    return ClientFiles(trusted=made.authority, certificate=made.client, key=made.key(made.client))


async def test_callers_that_come_together_have_one_context(files: ClientFiles) -> None:
    contexts = PeerContexts()
    with patch.object(contexts_module, "client_context", wraps=client_context) as making:
        found = await asyncio.gather(*(contexts.current(files) for _ in range(6)))
        assert await contexts.current(files) is found[0]
    assert len(set(found)) == making.call_count == 1


async def test_changed_files_make_a_new_context(made: Certificates, files: ClientFiles) -> None:
    contexts = PeerContexts()
    former = await contexts.current(files)
    put_over(made.new_authority("new"), made.authority)
    found = await asyncio.gather(*(contexts.current(files) for _ in range(6)))
    assert set(found) == {found[0]}
    assert found[0] is not former


async def test_other_files_make_a_new_context(files: ClientFiles) -> None:
    contexts = PeerContexts()
    former = await contexts.current(files)
    assert await contexts.current(ClientFiles(trusted=files.trusted)) is not former


async def test_files_that_do_not_fit_together_leave_the_former_context(
    made: Certificates, files: ClientFiles, caplog: pytest.LogCaptureFixture
) -> None:
    contexts = PeerContexts()
    former = await contexts.current(files)
    # A new certificate, whose key comes later.
    put_over(other := made.issue("other"), made.client)
    with caplog.at_level(logging.WARNING):
        assert await contexts.current(files) is former
        assert await contexts.current(files) is former
    (line,) = caplog.messages
    assert "the key does not belong to the certificate; the former ones stay" in line
    put_over(made.key(other), made.key(made.client))
    assert await contexts.current(files) is not former


async def test_missing_file_is_told_until_it_is_there(tmp_path: Path, made: Certificates) -> None:
    contexts = PeerContexts()
    files = ClientFiles(trusted=tmp_path / "later.pem")
    for _ in range(2):
        with pytest.raises(TlsError, match=r"later\.pem"):
            await contexts.current(files)
    put_over(made.authority, tmp_path / "later.pem")
    await contexts.current(files)


async def test_failure_is_tried_again_although_no_file_has_changed(files: ClientFiles) -> None:
    contexts = PeerContexts()
    # Rights of a file are no part of its state.
    denied = patch.object(contexts_module, "client_context", side_effect=TlsError("Permission denied"))
    with denied, pytest.raises(TlsError, match="Permission denied"):
        await contexts.current(files)
    await contexts.current(files)


async def test_caller_that_gives_up_leaves_the_context_to_others(files: ClientFiles) -> None:
    contexts = PeerContexts()
    first = asyncio.ensure_future(contexts.current(files))
    second = asyncio.ensure_future(contexts.current(files))
    await asyncio.sleep(0)
    first.cancel()
    assert await second is await contexts.current(files)
