"""`python -m docs.pages.generate` writes conf files and pages of reference from the tables of keys and policies.

The files are committed, and `tests/docs_pages/test_generate.py` fails when they differ from the tables.
`--check` only compares, and exits with 1 when a file would change.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

from bookie_stub.config.keys import BOOKIE_KEYS
from broker.config.keys import BROKER_KEYS
from docs.pages.admin_commands_page import admin_commands_page
from docs.pages.commands_page import commands_page
from docs.pages.fails_closed_page import fails_closed_page
from docs.pages.man_page import man_page
from docs.pages.policy_page import policies_page
from docs.pages.routes_page import routes_page
from docs.pages.wire_fields_page import wire_fields_page
from foundation.settings.keys import PROFILES, Key, KeyTable, Section, Value, format_value
from magnetar.process.client_keys import CLIENT_KEYS

ROOT = Path(__file__).resolve().parents[2]
WIDTH = 110

EMBEDDED_BOOKIE = [
    Section(f"Embedded bookie: {title}", [key for key in keys if key.name not in BROKER_KEYS.keys])
    for title, keys in BOOKIE_KEYS.sections
    if title not in ("Server", "TLS", "Metadata store")  # This bookie has no port.
]


def files() -> dict[str, str]:
    """Returns the text of each file, by its path below the project's root."""
    return {
        "conf/broker.conf": conf_file("the broker", BROKER_KEYS.sections),
        "conf/standalone.conf": conf_file(
            "`magnetar standalone`: a broker with a bookie inside",
            [*BROKER_KEYS.sections, *EMBEDDED_BOOKIE],
            standalone=True,
        ),
        "conf/bookkeeper.conf": conf_file("the bookie", BOOKIE_KEYS.sections),
        "conf/client.conf": conf_file("the command line's clients", CLIENT_KEYS.sections),
        "docs/man/magnetar.1": man_page(),
        "docs/reference/admin_commands.md": admin_commands_page(),
        "docs/reference/admin_routes.md": routes_page(),
        "docs/reference/commands.md": commands_page(),
        "docs/reference/configuration.md": documentation(),
        "docs/reference/fails_closed.md": fails_closed_page(),
        "docs/reference/policies.md": policies_page(),
        "docs/reference/wire_fields.md": wire_fields_page(),
    }


def conf_file(whose: str, sections: Iterable[Section], *, standalone: bool = False) -> str:
    """Makes a properties file that names every key with its shipped value, empty where it is computed."""
    head = [
        f"# Settings of {whose}.",
        "# Keys and defaults are Apache Pulsar's unless a comment says otherwise.",
        "# Nothing after the equals sign: unset, so that the computed value or the profile's default holds.",
        "# Written by `make generate`; edit freely where it is installed, but not in the repository.",
    ]
    return "\n".join([*head, *_conf_lines(sections, standalone), ""])


def _conf_lines(sections: Iterable[Section], standalone: bool) -> Iterator[str]:
    for title, keys in _used(sections):
        yield f"\n### --- {title} --- ###"
        for key in keys:
            yield ""
            yield from textwrap.wrap(_comment(key), WIDTH, initial_indent="# ", subsequent_indent="# ")
            yield f"{key.name}={format_value(shipped(key, standalone))}"


def _used(sections: Iterable[Section]) -> Iterator[Section]:
    """Leaves out the keys that have no effect, and sections of such keys alone."""
    for title, keys in sections:
        if used := [key for key in keys if key.used]:
            yield Section(title, used)


def shipped(key: Key, standalone: bool) -> Value | None:
    """Returns the value in the conf file; None leaves a key to the profile or to its computed value."""
    if standalone and key.standalone is not None:
        return key.standalone
    if key.shipped is not None:
        return key.shipped
    return None if key.differs_by_profile() else key.default_for(PROFILES[1], standalone)


def _comment(key: Key) -> str:
    parts = [_meaning(key)]
    if key.choices and key.kind != "list":
        parts.append(f"One of: {', '.join(key.choices)}.")
    if key.computed:
        parts.append(f"Unset: {key.computed}.")
    if key.differs_by_profile():
        columns = (f"{profile}: {_default(key, profile)}" for profile in PROFILES)
        parts.append(f"Default by profile: {', '.join(columns)}.")
    if key.ours:
        parts.append("Magnetar's own key.")
    return " ".join(parts)


def _meaning(key: Key) -> str:
    if key.needs is None:
        return key.doc
    switch, value = key.needs
    return f"{key.doc} Has an effect only with {switch}={value}."


def _default(key: Key, profile: str) -> str:
    value = key.default_for(profile)
    return "computed" if value is None and key.computed else format_value(value) or "unset"


INTRODUCTION = """\
# Configuration

Written by `make generate` from the tables of keys in `broker/config/`, `bookie_stub/config/keys.py` and
`magnetar/process/client_keys.py`.

Files are Java properties with Apache Pulsar's own keys, so an existing `broker.conf` can be used as it is. A value
comes from one of these sources; a later one wins:

1. the file (`--config`), or the values that we ship where there is none;
2. an environment variable whose name equals a key;
3. an environment variable `PULSAR_PREFIX_<key>`, in the order of their names;
4. `--set key=value` on the command line.

An empty value unsets a key: the default of the profile holds, or the computed value. A bad value stops the
start with one line (place, key, value, allowed values) and exit status 2. So does a value that asks for
[a protection which is missing](fails_closed.md). Any other key that Pulsar has and Magnetar does not
use is accepted, and named once in the log if it differs from its default. An unknown
key ends the start too, with the name of the nearest known one; `--allow-unknown-keys` lets a file of another version
pass, and the log names each such key. Of a key that stands twice in a file the later line wins,
with a warning that names both. Values of keys that hold secrets are masked wherever they are shown.

`magnetar config show --origin` prints the effective settings and the origin of each;
`magnetar config show --diff 4.0 5.0` prints the effects of a change of profile.

`pulsarDefaults` (or `--profile`) chooses the release whose defaults hold: 4.0, 4.2 or 5.0. A single default in the
tables below holds for all three.

Some defaults are shares of "direct memory". This is the size that a JVM would use: `-XX:MaxDirectMemorySize` in
the environment variable `PULSAR_MEM` where it is given, else the limit of the control group, else the memory
of the machine. `config show --origin` names the one that holds.

## At run time

Keys marked as *Dynamic* in the tables below change while the broker runs, as in Pulsar 4.2, also for connected
clients:

```
magnetar config set managedLedgerCacheSizeMB 512        # pulsar-admin brokers update-dynamic-config
magnetar config unset managedLedgerCacheSizeMB          # delete-dynamic-config: back to the value of the start
magnetar config dynamic                                 # get-all-dynamic-config: the values set at run time
magnetar config keys                                    # list-dynamic-config: the keys that may be set
magnetar config runtime                                 # get-runtime-config: the values that hold now
```

They ask the admin API (`--admin-url`, else `webServiceUrl` of `client.conf`), accept pulsar-admin's names and
flags too, and work with any Pulsar.

| request below `/admin/v2/brokers` | |
|---|---|
| `POST` or `PUT /configuration/KEY/VALUE` | set |
| `DELETE /configuration/KEY` | unset |
| `GET /configuration/values` | the values set at run time |
| `GET /configuration` | the keys that may be set |
| `GET /configuration/runtime` | the values that hold now |

The rules of a start apply to a change: to each value alone, and to all values together. A change that a start would
refuse is answered with 412 and the rule, and has no effect. A change that a start would warn about is made, with the
warning in the log and in the answer's `Warning` header. It is stored in the metadata store first and holds then. It
outranks file, environment and `--set`, at the next start too, with the origin `dynamic`; if the file contradicts it
then, it is left out with a warning. A computed value follows at run time only if its own key is dynamic:
`managedLedgerContinueCachingAddedEntriesAfterLastActiveCursorLeavesMillis` keeps the value that the start computed
from the time threshold.
"""


def documentation() -> str:
    """Makes the page with every key of the three tables."""
    parts = [INTRODUCTION]
    parts += _chapter("Broker (`conf/broker.conf`, `conf/standalone.conf`)", BROKER_KEYS)
    parts += _chapter(
        "Bookie (`conf/bookkeeper.conf`; in `standalone.conf` for the embedded bookie)", BOOKIE_KEYS
    )
    parts += _chapter("Client (`conf/client.conf`)", CLIENT_KEYS)
    return "\n".join(parts)


def _chapter(title: str, table: KeyTable) -> Iterator[str]:
    yield f"## {title}\n"
    for section, keys in _used(table.sections):
        yield f"### {section}\n"
        yield "| key | kind | default | allowed | meaning |\n|---|---|---|---|---|"
        for key in keys:
            yield _row(key)
        yield ""
    yield "### Accepted, not used\n"
    yield "Pulsar's keys without effect here, by reason. Those that [fail closed](fails_closed.md) are not among them.\n"
    by_reason: dict[str, list[str]] = {}
    for unused in table.unused.rows:
        if not unused.asks_for:
            by_reason.setdefault(unused.reason, []).append(unused.name)
    if planned := [key.name for key in table.keys.values() if not key.used and not key.asks_for]:
        by_reason["values are checked, without effect"] = planned
    for reason, names in sorted(by_reason.items(), key=lambda pair: pair[0].lower()):
        text = f"* **{reason}**: {', '.join(sorted(names, key=str.lower))}"
        yield textwrap.fill(text, WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    yield ""


def _row(key: Key) -> str:
    meaning = (
        _meaning(key) + (" *Magnetar's own.*" if key.ours else "") + (" *Dynamic.*" if key.dynamic else "")
    )
    return f"| `{key.name}` | {key.kind} | {_default_cell(key)} | {key.allowed()} | {meaning} |"


def _default_cell(key: Key) -> str:
    if key.differs_by_profile():
        cell = ", ".join(f"{profile}: {_default(key, profile)}" for profile in PROFILES)
        cell += f" (computed: {key.computed})" if key.computed else ""
    else:
        value = format_value(key.default)
        cell = value if value else f"computed: {key.computed}" if key.computed else "unset"
    if key.standalone is not None:
        cell += f"; standalone: {format_value(key.standalone)}"
    if key.shipped is not None:
        cell += "; our files set it"
    return cell


def main() -> int:
    """Writes the files, or compares them with `--check`."""
    parser = argparse.ArgumentParser(
        "python -m docs.pages.generate", description="Write the conf files and docs."
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is not current")
    check = parser.parse_args().check
    stale = [path for path, text in files().items() if _read(ROOT / path) != text]
    for path in stale:
        print(f"not current: {path}" if check else f"wrote {path}")
        if not check:
            (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / path).write_text(files()[path], encoding="utf-8")
    return 1 if check and stale else 0


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


if __name__ == "__main__":
    sys.exit(main())
