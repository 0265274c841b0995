"""The clock and the faults of a broker under test, over HTTP: Python's side of `broker/faults/routes.py`."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Final

from magnetar.kit.errors import KitError

TIMEOUT_S: Final = 300.0
"""Longest wait for an answer; an advance over a year of many topics takes some seconds."""
_CLOCK: Final = "/magnetar/test/clock"
_FAULTS: Final = "/magnetar/test/faults"


def ask(admin_url: str, method: str, path: str, body: object = None, token: str | None = None) -> object:
    """Returns the JSON of the answer, None where there is none. KitError carries the broker's reason."""
    request = urllib.request.Request(
        admin_url + path,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={
            "Content-Type": "application/json",
            **({"Authorization": f"Bearer {token}"} if token else {}),
        },
    )
    # Without the proxy of the environment: the broker is on the loopback.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=TIMEOUT_S) as answer:
            data = answer.read()
    except urllib.error.HTTPError as error:
        with error:
            text = error.read().decode(errors="replace")
        reason = _reason(text)
        if error.code == HTTPStatus.NOT_FOUND and path in (_CLOCK, _FAULTS):
            reason = "the broker has no test controls: start it with --test-faults"
        raise KitError(f"{method} {path}: {error.code} {reason}", error.code) from None
    except OSError as error:
        raise KitError(f"{method} {admin_url}{path}: {error}; is the broker running?") from None
    return json.loads(data) if data else None


def _reason(text: str) -> str:
    try:
        found = json.loads(text)
    except ValueError:
        return text
    return str(found["reason"]) if isinstance(found, dict) and "reason" in found else text


class Clock:
    """The broker's clock, which runs with the machine's until a test advances it.

    What a client does by itself (a time-out of `receive`, a delay between retries) goes by the machine's clock.
    """

    def __init__(self, admin_url: str, token: str | None = None) -> None:
        self._admin_url = admin_url
        self._token = token

    def now(self) -> datetime:
        """Returns the broker's time, in UTC."""
        return _time(ask(self._admin_url, "GET", _CLOCK, None, self._token))

    def advance(
        self,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        milliseconds: float = 0,
    ) -> datetime:
        """Moves the clock ahead and returns the new time, when everything that fell due has happened.

        Messages that became due are then on their way to consumers. KitError for a sum below a millisecond.
        """
        length = timedelta(
            days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds
        )
        body = {"advance_ms": length // timedelta(milliseconds=1)}
        return _time(ask(self._admin_url, "POST", _CLOCK, body, self._token))


def _time(found: object) -> datetime:
    assert isinstance(found, dict)
    return datetime.fromtimestamp(found["now_ms"] / 1000, UTC)


class Fault:
    """A fault that was set."""

    def __init__(self, faults: Faults, number: int, text: str) -> None:
        self._faults = faults
        self.id = number
        """The broker's number for it."""
        self._text = text

    def __repr__(self) -> str:
        return self._text

    @property
    def fired(self) -> int:
        """How often it has happened."""
        return self._count("fired")

    @property
    def seen(self) -> int:
        """Occurrences of its event since it was set."""
        return self._count("seen")

    def assert_fired(self, times: int | None = None) -> None:
        """Raises AssertionError unless it has happened: `times` times, None for at least once."""
        seen, fired = self.seen, self.fired
        assert fired if times is None else fired == times, (
            f"{self} happened {fired} times; its event occurred {seen} times"
        )

    def remove(self) -> None:
        """Takes it back; `fired` cannot be asked any more."""
        self._faults.ask("DELETE", f"/{self.id}")

    def _count(self, name: str) -> int:
        for found in self._faults.all():
            if found["id"] == self.id:
                return int(str(found[name]))
        raise KitError(f"{self} was removed")


class Faults:
    """The faults of a broker. `on` is a command of Pulsar's protocol, or STORAGE_ADD or METADATA_WRITE.

    `at`: the occurrence at which a fault begins, counted from 1 when it is set, over all connections. `times`: how
    often it happens; 0 for ever.
    """

    def __init__(self, admin_url: str, token: str | None = None) -> None:
        self._admin_url = admin_url
        self._token = token

    def drop(self, on: str, *, at: int = 1, times: int = 1) -> Fault:
        """Closes the connection in place of the command: `drop("ACK", at=3)`."""
        return self._set(on=on, do="drop", at=at, times=times)

    def lose(self, on: str, *, at: int = 1, times: int = 1) -> Fault:
        """Leaves the command out: `lose("SEND_RECEIPT")`."""
        return self._set(on=on, do="lose", at=at, times=times)

    def delay(self, on: str, seconds: float, *, at: int = 1, times: int = 1) -> Fault:
        """Holds the command, and all after it on its connection, by the machine's clock."""
        return self._set(on=on, do="delay", seconds=seconds, at=at, times=times)

    def refuse(self, on: str, error: str, *, at: int = 1, times: int = 1) -> Fault:
        """Answers with an error: `refuse("LOOKUP", "ServiceNotReady", times=2)`, `refuse("STORAGE_ADD", "FullDisk")`."""
        return self._set(on=on, do="refuse", error=error, at=at, times=times)

    def unload(self, topic: str, on: str, *, at: int = 1, times: int = 1) -> Fault:
        """Closes an open topic when the command arrives, as an unload does; the command itself is handled.

        It does not fire while the topic is closed. `Broker.unload` closes one now.
        """
        return self._set(on=on, do="unload", topic=topic, at=at, times=times)

    def all(self) -> list[dict[str, object]]:
        """Returns every fault with `seen` and `fired`."""
        found = self.ask("GET")
        assert isinstance(found, list)
        return found

    def unfired(self) -> Iterator[str]:
        """Yields the faults that have not happened: a test that ends with one has not tested it."""
        for found in self.all():
            if not found["fired"]:
                yield _never_happened(found)

    def clear(self) -> list[str]:
        """Takes all faults back; returns those that have not happened, as `unfired` does."""
        found = self.ask("DELETE")
        assert isinstance(found, list)
        return [_never_happened(fault) for fault in found if not fault["fired"]]

    def ask(self, method: str, path: str = "", body: object = None) -> object:
        """Sends a request about faults."""
        return ask(self._admin_url, method, _FAULTS + path, body, self._token)

    def _set(self, **fields: object) -> Fault:
        found = self.ask("POST", body=fields)
        assert isinstance(found, dict)
        return Fault(self, int(found["id"]), f"{fields['do']} on {fields['on']}")


def _never_happened(fault: dict[str, object]) -> str:
    return f"{fault['do']} on {fault['on']}, at {fault['at']}: its event occurred {fault['seen']} times"
