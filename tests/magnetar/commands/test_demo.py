"""The demo's reading of a scrape."""

from __future__ import annotations

import http.server
import threading

from magnetar.commands.demo import scrape, total

TEXT = """# HELP x_total Things.
# TYPE x_total counter
x_total{cluster="c",reason="ttl"} 5
x_total{cluster="c",reason="size"} 2.5 1700000000000
plain 7
"""


def test_scrape_reads_samples_and_total_sums_by_label() -> None:
    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(TEXT.encode())

        def log_message(self, *_: object) -> None:
            """Quiet."""

    with http.server.HTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        samples = scrape(f"http://127.0.0.1:{server.server_port}/")
        server.shutdown()
    assert total(samples, "x_total") == 7.5
    assert total(samples, "x_total", {"reason": "size"}) == 2.5
    assert total(samples, "plain") == 7
    assert total(samples, "x") == 0


def test_scrape_is_empty_when_no_page_answers() -> None:
    assert scrape("http://127.0.0.1:1") == []
