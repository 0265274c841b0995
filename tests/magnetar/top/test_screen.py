"""The screen of `magnetar top` in Textual's own test terminal: keys, readings, a broker that does not answer."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from rich.text import Text
from textual.pilot import Pilot
from textual.widgets import DataTable, Input, Static

from foundation.units import NS_PER_SECOND
from magnetar.clients.answer_object import AnswerObject
from magnetar.clients.client import CommandError
from magnetar.top.console import Look
from magnetar.top.rates import Scrapes
from magnetar.top.scrape import parse
from magnetar.top.screen import TopScreen
from magnetar.top.source import TOPICS
from tests.magnetar.top.test_views import CLUSTER, HISTORY, SETTINGS

NAMES = ("a", "b", "c")


class Broker:
    """Answers with `a`, `b` and `c`, which get 1, 2 and 3 messages per second; `c` has no backlog."""

    def __init__(self) -> None:
        self.readings = 0
        self.fails = False
        self.looks: dict[str, Look] = {}

    def read(self, topic: str, view: str) -> Scrapes:
        if self.fails:
            raise CommandError("no broker answers")
        self.readings += 1
        lines = ["# TYPE x gauge"]
        for number, name in enumerate(NAMES, 1):
            labels = f'{{namespace="n/s",topic="persistent://n/s/{name}"}}'
            lines.append(f"pulsar_in_messages_total{labels} {number * self.readings}")
            lines.append(f"pulsar_msg_backlog{labels} {0 if name == 'c' else number}")
            for metric, value in (("back_log", 7), ("unacked_messages", number), ("consumers_count", 2)):
                lines.append(f'pulsar_subscription_{metric}{labels[:-1]},subscription="s-{name}"}} {value}')
        scrape = parse("\n".join(lines) + "\n", topic)
        look = None if view == TOPICS else self.looks.get(view, Look(None, f"403 for {view}"))
        return Scrapes(self.readings * NS_PER_SECOND, scrape, scrape, look=look)


def screen_of(broker: Broker) -> TopScreen:
    """A screen whose timer does not come in a test's time: the tests ask for readings."""
    return TopScreen(broker.read, 3600.0, "rate", "")


def names(app: TopScreen) -> list[str]:
    table = app.query_one("#table", DataTable)
    return [str(table.get_row_at(index)[0]) for index in range(table.row_count)]


def text(app: TopScreen, name: str) -> str:
    return str(app.query_one(f"#{name}", Static).render())


async def until(pilot: Pilot[None], condition: Callable[[], bool]) -> None:
    """Lets the screen work until the condition holds; the test's own limit of time ends it."""
    while not condition():
        await pilot.pause(0.01)


@pytest.fixture
def broker() -> Broker:
    return Broker()


async def two_readings(pilot: Pilot[None], app: TopScreen, broker: Broker) -> None:
    await until(pilot, lambda: len(names(app)) == 3)
    app.tick()
    await until(pilot, lambda: "in 6/s" in text(app, "head"))
    assert broker.readings == 2


async def test_topics_are_shown_and_sorted_by_a_key(broker: Broker) -> None:
    app = screen_of(broker)
    async with app.run_test(size=(140, 30)) as pilot:
        await two_readings(pilot, app, broker)
        assert names(app) == ["n/s/c", "n/s/b", "n/s/a"]
        await pilot.press("s", "s")
        assert text(app, "state").startswith("topics by backlog")
        assert names(app) == ["n/s/b", "n/s/a", "n/s/c"]


async def test_filter_hides_topics_until_escape(broker: Broker) -> None:
    app = screen_of(broker)
    async with app.run_test(size=(140, 30)) as pilot:
        await two_readings(pilot, app, broker)
        await pilot.press("slash", *"s/b", "enter")
        await until(pilot, lambda: names(app) == ["n/s/b"])
        assert "filter: s/b" in text(app, "state")
        assert not app.query_one(Input).display
        await pilot.press("escape")
        await until(pilot, lambda: len(names(app)) == 3)


def cells(app: TopScreen) -> list[list[str]]:
    table = app.query_one("#table", DataTable)
    return [[str(cell) for cell in table.get_row_at(index)] for index in range(table.row_count)]


async def test_enter_shows_the_subscriptions_of_a_topic_until_escape(broker: Broker) -> None:
    app = screen_of(broker)
    async with app.run_test(size=(140, 30)) as pilot:
        await two_readings(pilot, app, broker)
        await pilot.press("down", "enter")
        await until(pilot, lambda: len(cells(app)) == 1)
        assert cells(app) == [["s-b", "7", "2", "0", "0", "0 B", "0", "-", "2", ""]]
        assert "topic    persistent://n/s/b" in text(app, "head")
        await pilot.press("enter")
        assert "persistent://n/s/b" in text(app, "head")
        await pilot.press("escape")
        await until(pilot, lambda: len(names(app)) == 3)
        assert "persistent://" not in text(app, "head")


async def test_pause_stops_readings_until_pressed_again(broker: Broker) -> None:
    app = screen_of(broker)
    async with app.run_test(size=(140, 30)) as pilot:
        await two_readings(pilot, app, broker)
        await pilot.press("p")
        assert "PAUSED" in text(app, "state")
        app.tick()
        await app.workers.wait_for_complete()
        assert broker.readings == 2
        await pilot.press("space")
        await until(pilot, lambda: broker.readings == 3)


async def test_last_numbers_stay_when_the_broker_does_not_answer(broker: Broker) -> None:
    app = screen_of(broker)
    async with app.run_test(size=(80, 24)) as pilot:
        await two_readings(pilot, app, broker)
        broker.fails = True
        app.tick()
        await until(pilot, lambda: app.query_one("#away", Static).display)
        assert text(app, "away").startswith("NO READING for 0 s, the numbers are older: no broker answers")
        assert len(names(app)) == 3
        broker.fails = False
        app.tick()
        await until(pilot, lambda: not app.query_one("#away", Static).display)


async def test_views_are_opened_by_their_numbers(broker: Broker) -> None:
    broker.looks = {
        "hour": Look(AnswerObject(HISTORY)),
        "settings": Look(AnswerObject({"settings": SETTINGS})),
    }
    app = screen_of(broker)
    async with app.run_test(size=(80, 24)) as pilot:
        await two_readings(pilot, app, broker)
        await pilot.press("2")
        await until(pilot, lambda: "1 hour ago" in text(app, "text"))
        assert not app.query_one("#table", DataTable).display
        await pilot.press("3")
        await until(pilot, lambda: text(app, "text") == "403 for cache")
        await pilot.press("5")
        await until(pilot, lambda: ["changedKey", "2", "--set", "may change"] in cells(app))
        assert [row[0] for row in cells(app)] == ["changedKey", "aKey"]
        await pilot.press("slash", *"akey", "enter")
        await until(pilot, lambda: [row[0] for row in cells(app)] == ["aKey"])
        await pilot.press("escape", "escape")
        await until(pilot, lambda: len(names(app)) == 3)


async def test_reason_of_a_move_is_folded_and_not_cut_on_a_narrow_screen(broker: Broker) -> None:
    broker.looks = {"cluster": Look(AnswerObject(CLUSTER))}
    app = TopScreen(broker.read, 3600.0, "rate", "", "cluster")
    async with app.run_test(size=(60, 24)) as pilot:
        await until(pilot, lambda: "last moves" in text(app, "text"))
        widget = app.query_one("#text", Static)
        await until(pilot, lambda: widget.size.height > len(text(app, "text").splitlines()))
        assert widget.size.width <= 60
        drawn = "".join(widget.render_line(row).text for row in range(widget.size.height))
        assert "w" * 80 in drawn.replace(" ", "")


async def test_view_of_another_version_is_named_and_ends_nothing(broker: Broker) -> None:
    broker.looks = {"cache": Look(AnswerObject({"policy": "x"}))}
    app = TopScreen(broker.read, 3600.0, "rate", "", "cache")
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "cannot be shown (KeyError" in text(app, "text"))


async def test_key_opens_a_view_while_a_slow_broker_answers(broker: Broker) -> None:
    answered = threading.Event()

    def read(topic: str, view: str) -> Scrapes:
        answered.wait()
        return broker.read(topic, view)

    app = TopScreen(read, 3600.0, "rate", "")
    async with app.run_test(size=(80, 24)) as pilot:
        try:
            await pilot.press("3")
            assert text(app, "state").startswith("what entered")
        finally:
            answered.set()
        # The reading that was under way is of the topics; the next one follows at once.
        await until(pilot, lambda: text(app, "text") == "403 for cache")


async def test_slow_broker_is_asked_by_one_thread_at_a_time(broker: Broker) -> None:
    begun: list[int] = []
    answered = threading.Event()

    def read(topic: str, view: str) -> Scrapes:
        begun.append(1)
        answered.wait()
        return broker.read(topic, view)

    app = TopScreen(read, 3600.0, "rate", "")
    async with app.run_test(size=(140, 30)) as pilot:
        try:
            await until(pilot, lambda: len(begun) == 1)
            app.tick()
            app.tick()
            await pilot.pause()
        finally:
            answered.set()
        await until(pilot, lambda: len(names(app)) == 3)
        assert len(begun) == 1
        await app.workers.wait_for_complete()
        app.tick()
        await until(pilot, lambda: len(begun) == 2)


async def test_names_with_brackets_are_shown_as_they_are(broker: Broker) -> None:
    scrape = parse('# TYPE x gauge\npulsar_msg_backlog{topic="persistent://n/s/a[red]b[/c]"} 1\n')
    app = TopScreen(lambda topic, view: Scrapes(0, scrape, scrape), 3600.0, "rate", "")
    async with app.run_test(size=(140, 30)) as pilot:
        await until(pilot, lambda: app.query_one("#table", DataTable).row_count == 1)
        cell = app.query_one("#table", DataTable).get_row_at(0)[0]
        assert isinstance(cell, Text)
        assert cell.plain == "n/s/a[red]b[/c]"


async def test_key_q_ends_the_screen(broker: Broker) -> None:
    app = screen_of(broker)
    async with app.run_test() as pilot:
        await pilot.press("q")
    assert app.return_code == 0
