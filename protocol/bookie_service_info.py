"""The value of a bookie's node among the registered ones: its addresses. BookKeeper's name: BookieServiceInfo.

A bookie writes it, brokers read it. A bookie's id need not be its address, so clients go by this value.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from protocol.bookkeeper_metadata_pb2 import BookieServiceInfoFormat

_ENDPOINT_ID: Final = "bookie"
_PROTOCOL: Final = "bookie-rpc"
"""Of the endpoint that BookKeeper's clients connect to."""
_HTTP_ID: Final = "httpserver"
"""Of the endpoint of a bookie's HTTP server, in BookKeeper too."""
_HTTP_PROTOCOL: Final = "http"
_EVERY_ADDRESS: Final = ("", "0.0.0.0", "::", "*")
"""Hosts that stand for every address of the machine; BookKeeper registers its HTTP server with the second one."""


class BookieEndpoints(NamedTuple):
    """The addresses of a bookie."""

    rpc: str | None
    """host:port for clients of BookKeeper; None without such an endpoint."""
    http: str | None
    """host:port of its HTTP server; None where none is registered."""


def service_info(host: str, port: int, http_port: int | None = None) -> bytes:
    """Returns the value for a bookie that listens at this address; `http_port` is that of its HTTP server."""
    endpoint = BookieServiceInfoFormat.Endpoint
    endpoints = [endpoint(id=_ENDPOINT_ID, port=port, host=host, protocol=_PROTOCOL)]
    if http_port is not None:
        endpoints.append(endpoint(id=_HTTP_ID, port=http_port, host=host, protocol=_HTTP_PROTOCOL))
    return BookieServiceInfoFormat(endpoints=endpoints).SerializeToString()


def endpoints_of(bookie_id: str, value: bytes) -> BookieEndpoints:
    """Returns the addresses in a bookie's value.

    Raises ValueError for other bytes. An old bookie writes an empty value; its id is its address.
    """
    if not value:
        return BookieEndpoints(bookie_id, None)
    try:
        endpoints = BookieServiceInfoFormat.FromString(value).endpoints
    except DecodeError as error:
        raise ValueError(f"no BookieServiceInfoFormat: {error}") from error
    rpc = next((end for end in endpoints if end.protocol == _PROTOCOL), None)
    http = next((end for end in endpoints if end.protocol == _HTTP_PROTOCOL), None)
    if rpc is None:
        return BookieEndpoints(None, None)
    address = f"{rpc.host}:{rpc.port}"
    if http is None:
        return BookieEndpoints(address, None)
    host = rpc.host if http.host in _EVERY_ADDRESS else http.host
    return BookieEndpoints(address, f"{host}:{http.port}")
