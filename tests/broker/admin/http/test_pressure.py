"""Requests of the admin port under pressure: classes, bounded queues, deadlines, the rate; nothing half done in silence."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestClient, TestServer
from aiohttp.typedefs import Handler

from broker.admin.http.pressure import Pressure, PressureSettings, before_asking_others
from broker.admin.http.request_classes import (
    ADVANCE,
    HEAVY,
    LOOKUP,
    PUBLISH,
    READ,
    SCRAPE,
    TEST_CLOCK,
    WRITE,
    RequestClass,
    class_of,
)
from broker.admin.server import answer_errors, create_app
from broker.compose.broker_service import BrokerService
from broker.faults.routes import CLOCK
from foundation.loop import clock

Answered = tuple[int, str]
Client = TestClient[web.Request, web.Application]
TOPIC = "/admin/v2/{domain}/{tenant}/{namespace}/{topic}"


class Stage:
    """Handlers that wait until they are let go."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.asking: list[str] = []
        """Those of `ended` that have asked others, from the moment at which they may."""
        self.part: Callable[[web.Request], Awaitable[object]] | None = None
        """Asks for a part."""
        self.pressure: Pressure | None = None
        self.before: Callable[[], Awaitable[object]] | None = None
        """Reads the store before the queue."""
        self.after: Callable[[web.Request], Awaitable[None]] | None = None
        """Runs between that read and the queue."""

    @web.middleware
    async def read_before(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        assert self.pressure is not None
        async with self.pressure.in_time(request):
            if self.before is not None:
                await self.before()
        if self.after is not None:
            await self.after(request)
        return await handler(request)

    async def handle(self, request: web.Request) -> web.Response:
        self.begun.append(request.path)
        await self.go.wait()
        self.ended.append(request.path)
        if "fails" in request.path:
            raise ValueError("broken")
        return web.Response(status=204)

    async def ask_others(self, request: web.Request) -> web.Response:
        """Asks for parts of the same class, as a request about all partitions asks brokers for those of each."""
        self.begun.append(request.path)
        # A second time changes nothing.
        for _ in range(2):
            await before_asking_others(request)
        self.asking.append(request.path)
        if self.part is not None:
            await self.part(request)
        self.ended.append(request.path)
        return web.Response(status=204)

    async def asking_count(self, count: int) -> None:
        while len(self.asking) < count:  # noqa: ASYNC110 - the handler has no event for a number
            await asyncio.sleep(0.001)

    async def begun_count(self, count: int) -> None:
        while len(self.begun) < count:  # noqa: ASYNC110 - the handler has no event for a number
            await asyncio.sleep(0.001)


Start = Callable[..., Awaitable[tuple[Stage, Client]]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    clients: list[Client] = []

    async def make(
        requests_max: int = 1000,
        deadline_s: float = 60,
        per_second: float = 0,
        now_ns: Callable[[], int] = clock.monotonic_ns,
    ) -> tuple[Stage, Client]:
        stage = Stage()
        settings = PressureSettings(
            requests_max=requests_max,
            deadline_s=deadline_s,
            rate_limited=per_second > 0,
            per_second=per_second or 100.0,
        )
        stage.pressure = Pressure(settings, now_ns)
        app = web.Application(middlewares=[answer_errors, stage.read_before, stage.pressure.guard])
        app.on_cleanup.append(stage.pressure.close)
        app.router.add_route("*", "/lookup/v2/topic/{topic}", stage.handle)
        app.router.add_route("*", TOPIC + "/{word}", stage.handle)
        app.router.add_route("*", "/admin/v2/brokers/configuration/{key}/{value}", stage.handle)
        app.router.add_route("*", TOPIC + "/partitioned-stats", stage.handle)
        app.router.add_route("*", TOPIC + "/all/partitioned-stats", stage.ask_others)
        app.router.add_route("*", TEST_CLOCK, stage.handle)
        client: Client = TestClient(TestServer(app))
        await client.start_server()
        clients.append(client)
        return stage, client

    yield make
    for client in clients:
        await client.close()


async def ask(client: Client, method: str, path: str) -> Answered:
    async with client.request(method, path) as answer:
        return answer.status, await answer.text()


def stats(number: int) -> str:
    return f"/admin/v2/persistent/public/default/t{number}/stats"


def asking(client: Client, method: str, *paths: str) -> list[asyncio.Task[Answered]]:
    return [asyncio.create_task(ask(client, method, path)) for path in paths]


async def test_lookups_and_writes_pass_reads_that_fill_their_queue(start: Start) -> None:
    stage, client = await start()
    reads = asking(client, "GET", *map(stats, range(READ.running_max + 10)))
    await stage.begun_count(READ.running_max)
    assert stage.pressure is not None
    others = [
        *asking(client, "GET", "/lookup/v2/topic/x"),
        *asking(client, "POST", "/admin/v2/persistent/public/default/t/unload"),
    ]
    await stage.begun_count(READ.running_max + 2)
    assert {"/lookup/v2/topic/x", "/admin/v2/persistent/public/default/t/unload"} < set(stage.begun)
    stage.go.set()
    assert {status for status, _ in await asyncio.gather(*reads, *others)} == {204}


async def test_full_queue_is_503_with_json_and_other_classes_go_on(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    stage, client = await start(requests_max=2)
    reads = asking(client, "GET", stats(1), stats(2))
    await stage.begun_count(2)
    status, text = await ask(client, "GET", stats(3))
    assert (status, text) == (
        503,
        '{"reason": "2 read requests run or wait (maxConcurrentHttpRequests); try again later"}',
    )
    assert caplog.text.count("refused") == 1
    stage.go.set()
    assert (await ask(client, "POST", "/admin/v2/persistent/public/default/t/unload"))[0] == 204
    await asyncio.gather(*reads)
    assert (await ask(client, "GET", stats(3)))[0] == 204


async def test_late_read_is_504_with_json_and_is_cancelled(start: Start) -> None:
    stage, client = await start(deadline_s=0.05)
    assert await ask(client, "GET", stats(1)) == (504, '{"reason": "Not finished within 0.05 s"}')
    stage.go.set()
    await asyncio.sleep(0)
    assert stage.ended == []


async def test_read_of_the_store_before_the_queue_has_the_deadline_of_its_request(start: Start) -> None:
    stage, client = await start(deadline_s=0.05)
    stage.before = stage.go.wait
    text = "The metadata store did not answer within 0.05 s: nothing was begun"
    unload = "/admin/v2/persistent/public/default/t/unload"
    for method, path in (("GET", stats(1)), ("POST", unload), ("GET", "/lookup/v2/topic/x")):
        assert await ask(client, method, path) == (504, f'{{"reason": "{text}"}}')
    assert stage.begun == []


async def test_request_that_has_read_the_store_until_its_deadline_is_not_begun(start: Start) -> None:
    stage, client = await start(deadline_s=0.05)
    loop = asyncio.get_running_loop()
    ends_s: list[float] = []

    async def at_the_deadline(request: web.Request) -> None:
        assert stage.pressure is not None
        ends_s.append(stage.pressure.deadline_of(request))
        is_over = asyncio.Event()
        loop.call_at(ends_s[-1], is_over.set)
        await is_over.wait()

    stage.after = at_the_deadline
    assert (await ask(client, "GET", stats(1)))[0] == 504
    assert stage.begun == []
    assert len(ends_s) == 1


async def test_advance_of_the_test_clock_has_no_deadline(start: Start) -> None:
    stage, client = await start(deadline_s=0.05)
    advance = asyncio.create_task(ask(client, "POST", TEST_CLOCK))
    await stage.begun_count(1)
    # A write that began later is late already.
    assert (await ask(client, "POST", "/admin/v2/persistent/public/default/t/unload"))[0] == 504
    stage.go.set()
    assert (await advance)[0] == 204


async def test_late_write_is_504_and_is_finished_and_told_in_the_log(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    stage, client = await start(deadline_s=0.05)
    path = "/admin/v2/persistent/public/default/t/unload"
    status, text = await ask(client, "POST", path)
    assert status == 504
    assert "the change goes on" in text
    stage.go.set()
    while f"POST {path} ended after its deadline: 204" not in caplog.text:  # noqa: ASYNC110 - a log line is no event
        await asyncio.sleep(0.001)
    assert stage.ended == [path]


async def test_late_write_that_fails_is_told_with_its_error(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    stage, client = await start(deadline_s=0.05)
    path = "/admin/v2/persistent/public/default/t/fails"
    assert (await ask(client, "POST", path))[0] == 504
    stage.go.set()
    while f"POST {path} failed after its deadline" not in caplog.text:  # noqa: ASYNC110 - a log line is no event
        await asyncio.sleep(0.001)
    assert "ValueError: broken" in caplog.text


async def test_secret_value_in_a_path_is_masked_in_every_line(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    stage, client = await start(requests_max=1, deadline_s=0.05)
    path = "/admin/v2/brokers/configuration/tokenSecretKey/planted%0Afails"
    shown = "POST /admin/v2/brokers/configuration/tokenSecretKey/"
    assert (await ask(client, "POST", path))[0] == 504
    assert (await ask(client, "POST", path))[0] == 503
    stage.go.set()
    while "failed after its deadline" not in caplog.text:  # noqa: ASYNC110 - a log line is no event
        await asyncio.sleep(0.001)
    assert (await ask(client, "POST", path))[0] == 500
    lines = [record.getMessage() for record in caplog.records if shown in record.getMessage()]
    assert [line.split(shown)[1].split()[1] for line in lines] == ["refused:", "failed", "failed"]
    assert "planted" not in caplog.text


async def test_write_that_waits_beyond_its_deadline_is_never_begun(start: Start) -> None:
    stage, client = await start(deadline_s=0.3)
    path = "/admin/v2/persistent/public/default/t/unload"
    first = asking(client, "POST", *[path] * WRITE.running_max)
    await stage.begun_count(WRITE.running_max)
    status, text = await ask(client, "POST", path + "2")
    assert status == 504
    assert "nothing was changed" in text
    stage.go.set()
    await asyncio.gather(*first)
    assert path + "2" not in stage.begun


async def test_write_that_the_stop_cuts_is_told_in_the_log(
    start: Start, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.admin.http.pressure.LAST_WRITES_S", 0.05)
    stage, client = await start(deadline_s=0.05)
    path = "/admin/v2/persistent/public/default/t/unload"
    assert (await ask(client, "POST", path))[0] == 504
    assert stage.pressure is not None
    await stage.pressure.close()
    assert f"POST {path} was ended by the stop of the broker" in caplog.text
    assert stage.ended == []


async def test_client_that_leaves_frees_its_place(start: Start) -> None:
    stage, client = await start(requests_max=2)
    left = asking(client, "GET", stats(1), stats(2))
    await stage.begun_count(2)
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    stage.go.set()
    status = 503
    while status == 503:  # The server ends the handlers of lost connections a little later.
        status, _ = await ask(client, "GET", stats(3))
    assert status == 204


def whole(number: int) -> str:
    return f"/admin/v2/persistent/public/default/t{number}/all/partitioned-stats"


@pytest.mark.parametrize(("method", "kind"), [("GET", HEAVY), ("PUT", WRITE)])
async def test_requests_that_ask_for_parts_of_their_class_leave_them_its_places(
    start: Start, method: str, kind: RequestClass
) -> None:
    stage, client = await start()
    stage.go.set()

    async def part(request: web.Request) -> None:
        # Not before as many run as may: with their places kept, no part would have one.
        await stage.asking_count(min(kind.running_max, kind.asking_max))
        path = request.path.replace("/all/", "/")
        assert await asyncio.gather(*asking(client, method, *[path] * 3)) == [(204, "")] * 3

    stage.part = part
    count = 2 * kind.running_max
    asked = asking(client, method, *map(whole, range(count)))
    assert await asyncio.gather(*asked) == [(204, "")] * count


async def test_requests_that_ask_for_parts_are_bounded(start: Start) -> None:
    stage, client = await start(requests_max=WRITE.asking_max + 1)
    assert stage.pressure is not None

    async def wait(_: web.Request) -> None:
        await stage.go.wait()

    stage.part = wait
    asked = asking(client, "PUT", *map(whole, range(WRITE.asking_max)))
    await stage.asking_count(WRITE.asking_max)
    waiting = asking(client, "PUT", whole(100))
    await stage.begun_count(WRITE.asking_max + 1)
    assert stage.pressure.waiting["write"] == 1
    # As many as may wait: a further one is refused before it has changed anything.
    assert (await ask(client, "PUT", whole(101)))[0] == 503
    # Parts, which run in the other queue of the class, go on.
    stage_paths = asking(client, "PUT", "/admin/v2/persistent/public/default/t/partitioned-stats")
    await stage.begun_count(WRITE.asking_max + 3)
    assert len(stage.asking) == WRITE.asking_max
    stage.go.set()
    found = await asyncio.gather(*asked, *waiting, *stage_paths)
    assert {status for status, _ in found} == {204}


async def test_write_that_waits_to_ask_beyond_its_deadline_asks_nobody(start: Start) -> None:
    stage, client = await start(deadline_s=0.3)

    async def wait(_: web.Request) -> None:
        await stage.go.wait()

    stage.part = wait
    first = asking(client, "PUT", *map(whole, range(WRITE.asking_max)))
    await stage.asking_count(WRITE.asking_max)
    status, text = await ask(client, "PUT", whole(100))
    assert status == 504
    assert "nothing was changed" in text
    stage.go.set()
    assert {"the change goes on" in text for _, text in await asyncio.gather(*first)} == {True}
    # Their places are free again.
    assert (await ask(client, "PUT", whole(101)))[0] == 204
    assert whole(100) not in stage.asking


async def test_requests_above_the_rate_are_429_with_json(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    # The clock stands still: on a busy machine twelve requests may take so long that the rate allows them.
    stage, client = await start(per_second=3.0, now_ns=lambda: 10**12)
    stage.go.set()
    found = [await ask(client, "GET", stats(number)) for number in range(12)]
    assert [status for status, _ in found[:3]] == [204, 204, 204]
    assert found[3:] == [(429, '{"reason": "Too Many Requests"}')] * 9
    assert caplog.text.count("httpRequestsMaxPerSecond=3") == 1


@pytest.mark.parametrize(
    ("method", "path", "kind"),
    [
        ("GET", "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}", LOOKUP),
        ("GET", TOPIC + "/partitions", LOOKUP),
        ("GET", "/admin/v2/brokers/health", LOOKUP),
        ("GET", TOPIC + "/stats", READ),
        ("GET", "/admin/v2/tenants", READ),
        ("PUT", TOPIC + "/partitions", WRITE),
        ("DELETE", TOPIC, WRITE),
        ("GET", TOPIC + "/partitioned-stats", HEAVY),
        ("GET", "/admin/v2/broker-stats/topics", HEAVY),
        ("GET", "/metrics", SCRAPE),
        ("POST", TEST_CLOCK, ADVANCE),
        ("GET", "/ws/v2/producer/{domain}/{tenant}/{namespace}/{topic}", None),
    ],
)
def test_class_of_a_request(method: str, path: str, kind: RequestClass | None) -> None:
    assert TEST_CLOCK == CLOCK
    assert class_of(method, path) is kind


async def test_every_route_that_changes_something_is_a_write(broker: BrokerService) -> None:
    routes = [route for route in (await create_app(broker)).router.routes() if route.resource is not None]
    assert len(routes) > 100
    for route in routes:
        assert route.resource is not None
        kind = class_of(route.method, route.resource.canonical)
        if kind is not None and route.method not in ("GET", "HEAD") and kind is not LOOKUP:
            assert kind is (PUBLISH if route.resource.canonical.startswith("/topics/") else WRITE), route


async def test_thousand_statistics_at_once_are_all_answered(
    broker: BrokerService, admin: ClientSession
) -> None:
    async with admin.put("/admin/v2/persistent/public/default/t") as answer:
        assert answer.status == 204

    async def status() -> int:
        async with admin.get("/admin/v2/persistent/public/default/t/stats") as answer:
            return answer.status

    assert {*await asyncio.gather(*(status() for _ in range(1000)))} == {200}


async def test_settings_come_from_the_keys(broker: BrokerService) -> None:
    settings = PressureSettings.of(broker.settings)
    assert (settings.requests_max, settings.deadline_s, settings.rate_limited) == (1024, 30, False)
