"""The value of a bookie's node among the available ones: its address. BookKeeper's name: BookieServiceInfo.

A bookie writes it, brokers read it. A bookie's id need not be its address, so clients go by this value.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError

from protocol.bookkeeper_metadata_pb2 import BookieServiceInfoFormat

_ENDPOINT_ID = "bookie"
_PROTOCOL = "bookie-rpc"
"""Of the endpoint that BookKeeper's clients connect to."""


def service_info(host: str, port: int) -> bytes:
    """The value for a bookie that listens at this address."""
    endpoint = BookieServiceInfoFormat.Endpoint(id=_ENDPOINT_ID, port=port, host=host, protocol=_PROTOCOL)
    return BookieServiceInfoFormat(endpoints=[endpoint]).SerializeToString()


def address_of(bookie_id: str, value: bytes) -> str | None:
    """host:port in a bookie's value, None when it has no such endpoint.

    Raises ValueError for other bytes. An old bookie writes an empty value; its id is its address.
    """
    if not value:
        return bookie_id
    try:
        endpoints = BookieServiceInfoFormat.FromString(value).endpoints
    except DecodeError as error:
        raise ValueError(f"no BookieServiceInfoFormat: {error}") from error
    return next((f"{end.host}:{end.port}" for end in endpoints if end.protocol == _PROTOCOL), None)
