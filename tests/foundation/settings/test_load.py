"""Settings from file, environment and overrides: precedence, refusals, notes."""

from __future__ import annotations

from pathlib import Path

import pytest

from foundation.settings.errors import NotDynamic, SettingsError
from foundation.settings.keys import COMPUTED, MASK, Key, KeyTable, Section
from foundation.settings.load import load_settings, refuse_unknown, unknown_allowed
from foundation.settings.settings import Computed, Settings
from foundation.settings.unused import UnusedKeys

UNUSED = UnusedKeys(Path(__file__).with_name("unused_keys.tsv"))
# fmt: off
ROWS = (
    Key("pulsarDefaults", "string", "4.2", doc="Profile.", choices=("4.0", "4.2", "5.0")),
    Key("batchSize", "int", 100, "entries", doc="Entries.", v50=500, low=1, dynamic=True),
    Key("bytesMax", "long", None, "bytes", doc="Bytes.", low=0, computed="2 x batchSize", dynamic=True),
    Key("inFlight", "long", 0, "MiB", doc="MiB.", v50=COMPUTED, computed="3 x batchSize"),
    Key("share", "double", 0.9, "share", doc="Share.", low=0, high=1),
    Key("enabled", "bool", False, doc="On or off.", standalone=True),
    Key("names", "list", None, doc="Names.", shipped=("x", "y"), choices=("a", "b", "c", "x", "y")),
    Key("mode", "string", "slow", doc="Mode.", choices=("slow", "fast")),
    Key("peers", "list", None, doc="Addresses.", form=(r".+:\d+", "host:port")),
    Key("storePassword", "string", None, doc="Secret."),
    Key("plannedLimit", "int", 7, "things", doc="Without effect.", used=False),
)
# fmt: on
TABLE = KeyTable("test", [Section("All", ROWS)], unused=UNUSED, prefixes=("library_",))
RULES = {
    "bytesMax": lambda settings: Computed(2 * settings.int("batchSize"), "2 x batchSize"),
    "inFlight": lambda settings: Computed(3 * settings.int("batchSize"), "3 x batchSize"),
}


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    return tmp_path / "test.conf"


def load(
    path: Path | None = None,
    *overrides: str,
    profile: str | None = None,
    standalone: bool = False,
    neighbours: tuple[str, ...] = (),
    **environ: str,
) -> Settings:
    return load_settings(
        TABLE,
        path,
        environ=environ,
        overrides=overrides,
        profile=profile,
        standalone=standalone,
        neighbours=neighbours,
        rules=RULES,
    )


def warnings(settings: Settings) -> list[str]:
    return [note.text for note in settings.notes if note.level == "warning"]


def test_file_sets_keys_of_every_kind(conf: Path) -> None:
    conf.write_text("batchSize=7\nbytesMax=9000000000\nshare=0.5\nenabled=TRUE\nnames= a, b ,,c\nmode=fast\n")
    settings = load(conf)
    assert settings.int("batchSize") == 7
    assert settings.int("bytesMax") == 9_000_000_000
    assert settings.float("share") == 0.5
    assert settings.bool("enabled") is True
    assert settings.list("names") == ("a", "b", "c")
    assert settings.str("mode") == "fast"
    assert settings.origin("mode") == f"{conf}:6"
    assert settings.notes == ()


def test_later_source_wins(conf: Path) -> None:
    conf.write_text("batchSize=1\n")
    assert load(conf).int("batchSize") == 1
    assert load(conf, batchSize="2").origin("batchSize") == "environment batchSize"
    by_prefix = load(conf, batchSize="2", PULSAR_PREFIX_batchSize=" 3 ")
    assert (by_prefix.int("batchSize"), by_prefix.origin("batchSize")) == (
        3,
        "environment PULSAR_PREFIX_batchSize",
    )
    by_set = load(conf, "batchSize=4", "batchSize=5", PULSAR_PREFIX_batchSize="3")
    assert (by_set.int("batchSize"), by_set.origin("batchSize")) == (5, "--set")


def test_environment_is_noted_with_secrets_masked() -> None:
    settings = load(None, PULSAR_PREFIX_storePassword="open sesame", mode="fast", HOME="/")
    assert settings.str("storePassword") == "open sesame"
    assert [note.text for note in settings.notes] == [
        "Applying config mode = fast (environment mode)",
        f"Applying config storePassword = {MASK} (environment PULSAR_PREFIX_storePassword)",
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("batchSize=many", "batchSize=many: allowed is a whole number from 1 to 2147483647"),
        ("batchSize=0", "batchSize=0: allowed is a whole number from 1 to 2147483647"),
        ("batchSize=1_000", "batchSize=1_000: allowed is a whole number from 1 to 2147483647"),
        ("batchSize=٣", "batchSize=٣: allowed is a whole number from 1 to 2147483647"),
        ("batchSize=3000000000", "batchSize=3000000000: allowed is a whole number from 1 to 2147483647"),
        ("bytesMax=1.5", "bytesMax=1.5: allowed is a whole number from 0"),
        ("share=1.1", "share=1.1: allowed is a number from 0 to 1"),
        ("share=nan", "share=nan: allowed is a number from 0 to 1"),
        ("enabled=yes", "enabled=yes: allowed is true or false"),
        ("mode=medium", "mode=medium: allowed is one of slow, fast"),
        ("names=a,d", "names=a,d: allowed is any of a, b, c, x, y"),
        ("peers=h:1,h", "peers=h:1,h: allowed is host:port"),
        ("plannedLimit=x", "plannedLimit=x: allowed is a whole number from -2147483648 to 2147483647"),
    ],
)
def test_bad_value_is_refused_in_one_line(conf: Path, text: str, line: str) -> None:
    conf.write_text(f"# head\n{text}\n", encoding="utf-8")
    with pytest.raises(SettingsError) as caught:
        load(conf)
    assert caught.value.line == f"{conf}:2: {line}"


def test_bad_value_names_its_variable_or_option(conf: Path) -> None:
    with pytest.raises(SettingsError, match=r"^environment PULSAR_PREFIX_batchSize: batchSize=x: allowed"):
        load(None, PULSAR_PREFIX_batchSize="x")
    with pytest.raises(SettingsError, match=r"^--set: batchSize=x: allowed"):
        load(None, "batchSize=x")
    with pytest.raises(SettingsError, match=r"^--set: batchSize: allowed is key=value$"):
        load(None, "batchSize")


def test_file_is_refused_when_it_cannot_be_read(conf: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"test\.conf: No such file"):
        load(conf)
    with pytest.raises(SettingsError, match="directory"):
        load(tmp_path)
    conf.write_bytes(b"a=\xff\xfe")
    with pytest.raises(SettingsError, match="not UTF-8 at byte 2"):
        load(conf)


def test_byte_order_mark_is_skipped(conf: Path) -> None:
    conf.write_bytes(b"\xef\xbb\xbfbatchSize=3\n")
    assert load(conf).int("batchSize") == 3


def test_repeated_key_is_noted_with_both_lines(conf: Path) -> None:
    conf.write_text("batchSize=1\nmode=fast\nbatchSize=2\n")
    settings = load(conf)
    assert settings.int("batchSize") == 2
    assert warnings(settings) == [f"{conf}: batchSize stands on lines 1 and 3; line 3 wins"]


def test_unknown_key_is_noted_with_the_nearest_known_one(conf: Path) -> None:
    conf.write_text("batchsize=1\nsomethingElse=2\n")
    assert warnings(load(conf)) == [
        f"{conf}:1: batchsize is not a key that this program knows; did you mean batchSize?",
        f"{conf}:2: somethingElse is not a key that this program knows",
    ]


def test_unknown_key_ends_the_start_of_a_server_with_the_nearest_name(conf: Path) -> None:
    conf.write_text("batchsize=1\nsomethingElse=2\n")
    with pytest.raises(SettingsError) as refused:
        refuse_unknown(load(conf).notes)
    assert str(refused.value).splitlines() == [
        f"{conf}:1: batchsize is not a key that this program knows; did you mean batchSize?",
        f"{conf}:2: somethingElse is not a key that this program knows. Correct or remove it, or start with"
        " --allow-unknown-keys to go without its effect",
    ]


def test_keys_that_pulsar_knows_end_no_start(conf: Path) -> None:
    conf.write_text("ioThreads=4\nbalancerName=x\n")
    refuse_unknown(load(conf).notes)
    assert unknown_allowed(load(conf).notes) == ""


def test_keys_without_effect_are_noted_in_one_line(conf: Path) -> None:
    conf.write_text("ioThreads=4\nbalancerName=x\nlibrary_option=1\nplannedLimit=8\n")
    assert warnings(load(conf)) == [
        "set, but not used here: balancerName, ioThreads, library_option, plannedLimit"
    ]


def test_unused_key_is_not_noted_when_it_has_a_default_value(conf: Path) -> None:
    conf.write_text("ioThreads=16\nbalancerName=\nplannedLimit=7\n")
    assert warnings(load(conf)) == []


def test_keys_of_another_table_are_skipped(conf: Path) -> None:
    conf.write_text("journalSync=maybe\nbatchSize=2\n")
    settings = load(conf, neighbours=("journalSync", "batchSize"), PULSAR_PREFIX_journalSync="no")
    assert settings.notes == ()
    assert settings.int("batchSize") == 2


def test_empty_value_unsets_the_key(conf: Path) -> None:
    conf.write_text("batchSize=\nbytesMax=\nnames=\n")
    settings = load(conf)
    assert settings.int("batchSize") == 100
    assert settings.origin("batchSize") == "profile 4.2"
    assert settings.int("bytesMax") == 200
    assert settings.origin("bytesMax") == "computed: 2 x batchSize"
    assert settings.list("names") == ()
    assert load(conf, batchSize="5", PULSAR_PREFIX_batchSize="").int("batchSize") == 100


def test_profile_chooses_the_defaults(conf: Path) -> None:
    assert load(None).int("batchSize") == 100
    assert load(None, "pulsarDefaults=5.0").int("batchSize") == 500
    assert load(None, "pulsarDefaults=5.0", profile="4.0").int("batchSize") == 100
    newest = load(None, profile="5.0")
    assert (newest.str("pulsarDefaults"), newest.origin("pulsarDefaults")) == ("5.0", "--profile")
    assert (load(None).int("inFlight"), newest.int("inFlight")) == (0, 1500)
    assert newest.origin("batchSize") == "profile 5.0"
    with pytest.raises(
        SettingsError, match=r"^--set: pulsarDefaults=3\.9: allowed is one of 4\.0, 4\.2, 5\.0$"
    ):
        load(None, "pulsarDefaults=3.9")


def test_standalone_takes_its_own_defaults() -> None:
    assert load(None).bool("enabled") is False
    settings = load(None, standalone=True)
    assert settings.bool("enabled") is True
    assert settings.origin("enabled") == "default of standalone"


def test_shipped_values_hold_when_there_is_no_file(conf: Path) -> None:
    assert load(None).list("names") == ("x", "y")
    assert load(None).origin("names") == "shipped"
    conf.write_text("")
    assert load(conf).list("names") == ()


def test_dynamic_change_makes_new_settings() -> None:
    before = load(None, "batchSize=50")
    after = before.with_dynamic({"batchSize": " 8 "})
    assert (before.int("batchSize"), after.int("batchSize")) == (50, 8)
    assert after.origin("batchSize") == "dynamic"
    assert before.with_dynamic({}).int("batchSize") == 50
    with pytest.raises(SettingsError, match=r"^dynamic: batchSize=0: allowed is a whole number from 1"):
        before.with_dynamic({"batchSize": "0"})


def test_computed_value_follows_at_run_time_only_when_its_own_key_is_dynamic() -> None:
    before = load(None, profile="5.0")
    after = before.with_dynamic({"batchSize": "8"})
    assert (before.int("bytesMax"), after.int("bytesMax")) == (1000, 16)
    assert (before.int("inFlight"), after.int("inFlight")) == (1500, 1500)
    assert after.origin("inFlight") == "computed: 3 x batchSize"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("mode", "only changes with a restart"),
        ("ioThreads", "only changes with a restart"),
        ("library_x", "only changes with a restart"),
        ("nothing", "no such key"),
        ("batchSise", "no such key; did you mean batchSize?"),
    ],
)
def test_change_at_run_time_is_refused_when_the_key_is_not_dynamic(name: str, reason: str) -> None:
    with pytest.raises(NotDynamic) as caught:
        load(None).with_dynamic({name: "1"})
    assert caught.value.line.startswith(f"dynamic: {name}: ")
    assert caught.value.line.endswith(reason)
    assert not TABLE.is_dynamic(name)


def test_key_without_effect_may_change_at_run_time_when_pulsar_allows_it() -> None:
    assert TABLE.dynamic_names() == ["balancerName", "batchSize", "bytesMax", "guardEnabled", "guardRoles"]
    after = load(None).with_dynamic({"balancerName": "x"})
    assert after.int("batchSize") == 100


def test_reading_fails_when_the_key_is_missing_or_of_another_kind() -> None:
    settings = load(None)
    with pytest.raises(AssertionError, match="is a int, asked for as string"):
        settings.str("batchSize")
    with pytest.raises(AssertionError, match="is not in the table"):
        settings.int("nothing")


def test_error_masks_secrets() -> None:
    key = Key("keyPassword", "string", None, doc="Secret.", choices=("a", "b"))
    table = KeyTable("t", [Section("s", [key])], unused=UNUSED)
    with pytest.raises(SettingsError) as caught:
        load_settings(table, None, environ={}, overrides=["keyPassword=hunter2"])
    assert "hunter2" not in caught.value.line
