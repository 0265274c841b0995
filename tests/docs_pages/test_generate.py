"""The committed conf files and docs/reference/configuration.md agree with the tables of keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from bookie_stub.config.keys import BOOKIE_KEYS
from bookie_stub.config.rules import load_bookie_settings
from broker.config import load_broker_settings
from broker.config.keys import BROKER_KEYS
from docs.pages.generate import ROOT, files, main
from magnetar.process.client_keys import CLIENT_KEYS, load_client_settings
from magnetar.process.process_settings import load_standalone_settings

CURRENT = files()


@pytest.mark.parametrize("path", CURRENT)
def test_committed_files_are_current(path: str) -> None:
    assert (ROOT / path).read_text(encoding="utf-8") == CURRENT[path], "run `make generate`"


def test_check_names_a_stale_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("docs.pages.generate.ROOT", tmp_path)
    monkeypatch.setattr("sys.argv", ["generate"])
    assert main() == 0
    monkeypatch.setattr("sys.argv", ["generate", "--check"])
    assert main() == 0
    (tmp_path / "conf/client.conf").write_text("brokerServiceUrl=x\n")
    capsys.readouterr()
    assert main() == 1
    assert capsys.readouterr().out == "not current: conf/client.conf\n"


def test_shipped_files_load_without_notes() -> None:
    environ: dict[str, str] = {}
    assert load_broker_settings(ROOT / "conf/broker.conf", environ=environ).notes == ()
    assert load_standalone_settings(ROOT / "conf/standalone.conf", environ=environ).notes == ()
    assert load_bookie_settings(ROOT / "conf/bookkeeper.conf", environ=environ).notes == ()
    assert load_client_settings(ROOT / "conf/client.conf", environ=environ).notes == ()


@pytest.mark.parametrize("standalone", [False, True])
@pytest.mark.parametrize("profile", ["4.0", "4.2", "5.0"])
def test_shipped_file_sets_the_values_that_hold_without_a_file(standalone: bool, profile: str) -> None:
    path = ROOT / ("conf/standalone.conf" if standalone else "conf/broker.conf")
    if standalone:
        with_file = load_standalone_settings(path, environ={}, profile=profile).broker
    else:
        with_file = load_broker_settings(path, environ={}, profile=profile)
    without = load_broker_settings(None, environ={}, profile=profile, standalone=standalone)
    for name in BROKER_KEYS.keys:
        assert with_file.value(name) == without.value(name), name


def test_every_key_is_on_the_page() -> None:
    page = CURRENT["docs/reference/configuration.md"]
    refused = CURRENT["docs/reference/fails_closed.md"]
    for table in (BROKER_KEYS, BOOKIE_KEYS, CLIENT_KEYS):
        for name in (*table.keys, *table.unused.defaults):
            asks = table.is_unused(name) and table.protection(name)
            assert f"`{name}`" in refused if asks else name in page, name
