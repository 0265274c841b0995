"""`python -m magnetar.commands.generate`: writes the conf files and `docs/configuration.md` from the tables of keys.

The tables are the truth, the files are committed, and a test says when they are not current.
`--check` only compares and exits with 1 when a file would change.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

from bookie_stub.config.keys import BOOKIE_KEYS
from broker.config import BROKER_KEYS
from magnetar.clients.client_keys import CLIENT_KEYS
from settings.keys import PROFILES, Key, KeyTable, Section, Value, format_value

ROOT = Path(__file__).resolve().parents[2]
WIDTH = 110

EMBEDDED_BOOKIE = [
    (f"Embedded bookie: {title}", [key for key in keys if key.name not in BROKER_KEYS.keys])
    for title, keys in BOOKIE_KEYS.sections
    if title not in ("Server", "Metadata store")
]


def files() -> dict[str, str]:
    """Path below the project's root to the text that belongs there."""
    return {
        "conf/broker.conf": conf_file("the broker", BROKER_KEYS.sections),
        "conf/standalone.conf": conf_file(
            "`magnetar standalone`: a broker with a bookie inside",
            [*BROKER_KEYS.sections, *EMBEDDED_BOOKIE],
            standalone=True,
        ),
        "conf/bookkeeper.conf": conf_file("the bookie", BOOKIE_KEYS.sections),
        "conf/client.conf": conf_file("the command line's clients", CLIENT_KEYS.sections),
        "docs/configuration.md": documentation(),
    }


def conf_file(whose: str, sections: Iterable[Section], *, standalone: bool = False) -> str:
    """A properties file that names every key with its shipped value, or nothing where it is computed."""
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
    """A file or a table names no key that would have no effect."""
    for title, keys in sections:
        if used := [key for key in keys if key.used]:
            yield title, used


def shipped(key: Key, standalone: bool) -> Value | None:
    """What the conf file says: a key whose default depends on the profile is left to the profile."""
    if standalone and key.standalone is not None:
        return key.standalone
    if key.shipped is not None:
        return key.shipped
    return None if key.differs_by_profile() else key.default_for(PROFILES[1], standalone)


def _comment(key: Key) -> str:
    parts = [key.doc]
    if key.choices:
        parts.append(f"One of: {', '.join(key.choices)}.")
    if key.computed:
        parts.append(f"Unset: {key.computed}.")
    if key.differs_by_profile():
        columns = (f"{profile}: {_default(key, profile)}" for profile in PROFILES)
        parts.append(f"Default by profile: {', '.join(columns)}.")
    if key.ours:
        parts.append("Magnetar's own key.")
    return " ".join(parts)


def _default(key: Key, profile: str) -> str:
    value = key.default_for(profile)
    return "computed" if value is None and key.computed else format_value(value) or "unset"


INTRODUCTION = """\
# Configuration

Written by `make generate` from the tables of keys in `broker/config/`, `bookie_stub/config/keys.py` and
`magnetar/clients/client_keys.py`.

Files are Java properties with Apache Pulsar's own keys, so a `broker.conf` that exists already can be used
as it is. Where a value comes from, the last one wins:

1. the file (`--config`), or the values that we ship where there is none;
2. an environment variable whose name equals a key;
3. an environment variable `PULSAR_PREFIX_<key>`, in the order of their names;
4. `--set key=value` on the command line.

An empty value unsets a key: the default of the profile holds, or the computed value. A bad value stops the
start with one line (where, key, value, what is allowed) and exit status 2. A key that Pulsar has and we do
not use is accepted, and named once in the log if it is set to something else than its default. An unknown
key is a warning that names the nearest known one; of a key that stands twice in a file the later line wins,
with a warning that names both. Values of keys that hold secrets are masked wherever they are shown.

`magnetar config show --origin` prints the effective settings and where each came from;
`magnetar config show --diff 4.0 5.0` prints what a change of profile changes.

`magnetarProfile` (or `--profile`) chooses whose defaults hold: 4.0, 4.2 or 5.0. Where the table below has one
default, it holds for all three.

"Direct memory", which some defaults are shares of, is what a JVM would be told: `-XX:MaxDirectMemorySize` in
the environment variable `PULSAR_MEM` where it is given, else the limit of the control group, else the memory
of the machine. `config show --origin` says which.

## At run time

What the tables below mark as *Dynamic* changes while the broker runs, as in Pulsar 4.2, and for clients that are
connected:

```
magnetar config set managedLedgerCacheSizeMB 512        # pulsar-admin brokers update-dynamic-config
magnetar config unset managedLedgerCacheSizeMB          # delete-dynamic-config: what the broker was started with
magnetar config dynamic                                 # get-all-dynamic-config: what is set at run time
magnetar config keys                                    # list-dynamic-config: what may be set
magnetar config runtime                                 # get-runtime-config: what holds now
```

They ask the admin API (`--admin-url`, else `webServiceUrl` of `client.conf`), answer to pulsar-admin's names and
flags too, and work with any Pulsar.

| request below `/admin/v2/brokers` | |
|---|---|
| `POST` or `PUT /configuration/KEY/VALUE` | set |
| `DELETE /configuration/KEY` | unset |
| `GET /configuration/values` | what is set at run time |
| `GET /configuration` | keys that may be set |
| `GET /configuration/runtime` | what holds now |

A change is checked by the rules of a start: each value alone, and beside the others. What a start would refuse is
answered with 412 and the rule, and changes nothing; what a start would warn of is done, and stands in the log and in
the answer's `Warning` header. Then it is kept in the metadata store, and only then does it hold. It outranks file,
environment and `--set`, at the next start too, with the origin `dynamic`; if a file contradicts it by then, it is
left out with a warning. A computed value follows at run time only if its own key is dynamic:
`managedLedgerContinueCachingAddedEntriesAfterLastActiveCursorLeavesMillis` stays what the start made of the time
threshold.
"""


def documentation() -> str:
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
    names = [*table.unused, *(key.name for key in table.keys.values() if not key.used)]
    yield textwrap.fill(", ".join(sorted(names, key=str.lower)), WIDTH, break_on_hyphens=False) + "\n"


def _row(key: Key) -> str:
    meaning = key.doc + (" *Magnetar's own.*" if key.ours else "") + (" *Dynamic.*" if key.dynamic else "")
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
    parser = argparse.ArgumentParser(
        "python -m magnetar.commands.generate", description="Write the conf files and docs."
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
