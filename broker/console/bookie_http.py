"""Fetches a page of a bookie's HTTP server, within limits of time and size."""

from __future__ import annotations

from typing import Final

from aiohttp import ClientError, ClientSession, ClientTimeout

BYTES_MAX: Final = 2 << 20
"""Longest page that is read; the metrics of a bookie are some hundred KB."""
REASON_MAX: Final = 200
"""Characters of a refusal that are shown."""


class NoAnswer(Exception):
    """The server gave no answer that can be used."""


async def fetch_text(address: str, path: str, timeout_s: float) -> str:
    """Returns the text at http://`address` and `path`. Raises NoAnswer; its text names address and reason."""
    url = f"http://{address}{path}"
    try:
        async with (
            ClientSession(timeout=ClientTimeout(total=timeout_s), trust_env=False) as session,
            # A redirect would lead the broker to an address that no operator has named.
            session.get(url, allow_redirects=False) as answer,
        ):
            body = b""
            async for chunk in answer.content.iter_any():
                body += chunk
                if len(body) > BYTES_MAX:
                    raise NoAnswer(f"{url} answers more than {BYTES_MAX} bytes")
            if answer.status != 200:
                reason = body[:REASON_MAX].decode(errors="replace").strip()
                raise NoAnswer(f"{url} answers {answer.status} {reason}".strip())
    except TimeoutError:
        raise NoAnswer(f"{url} did not answer within {timeout_s:g} s") from None
    except (ClientError, OSError, ValueError) as error:
        raise NoAnswer(f"{url}: {reason_of(error)}") from None
    return body.decode(errors="replace")


def reason_of(error: Exception) -> str:
    """Returns the reason of a failed request, without the classes and numbers of the library."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
