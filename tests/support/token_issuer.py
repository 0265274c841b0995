"""An issuer of OAuth 2.0 tokens on the loopback, for accounts of tests."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

from tests.support.command_json import Json
from tests.support.tokens import token


class Issuer:
    """An HTTP server that gives tokens to one account, whose secret is "right"."""

    def __init__(self, lives_s: int) -> None:
        """`lives_s`: seconds from now until a token expires at the broker."""
        self.lives_s = lives_s
        self.expires_in_s = 61
        """Lifetime that the answers name; the client replaces a token a minute before its end."""
        self.is_down = False
        self.forms: list[dict[str, list[str]]] = []
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(200, {"token_endpoint": f"{issuer.url}/token"})

            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                issuer.forms.append(form)
                if issuer.is_down:
                    self._answer(503, {"error": "temporarily_unavailable"})
                    return
                if form["client_secret"] != ["right"]:
                    self._answer(401, {"error": "invalid_client"})
                    return
                claims: dict[str, Json] = {
                    "sub": form["client_id"][0],
                    "exp": int(time.time()) + issuer.lives_s,
                }
                self._answer(200, {"access_token": token(claims), "expires_in": issuer.expires_in_s})

            def _answer(self, code: int, content: dict[str, str | int]) -> None:
                body = json.dumps(content).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: object) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
