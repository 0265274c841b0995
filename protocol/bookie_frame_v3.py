"""BookKeeper's v3 wire: the frames of v2 with one protobuf message in each.

The first byte of a packet tells the two versions apart as a rule: v2 begins with its version, and no protobuf message
begins with a number below 8. Outside of the messages, results are v2's codes (RC_…). Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from google.protobuf.message import DecodeError

from protocol.bookie_frame import (
    AUTH_DISABLED,
    LENGTH,
    RC_BAD_REQUEST,
    RC_BAD_VERSION,
    RC_FENCED,
    RC_IO_ERROR,
    RC_NO_ENTRY,
    RC_NO_LEDGER,
    RC_OK,
    RC_READ_ONLY,
    RC_TOO_MANY_REQUESTS,
    RC_UNAUTHORIZED,
    RC_UNKNOWN_LEDGER_STATE,
    Buffer,
)
from protocol.bookkeeper_api_pb2 import (
    ADD_ENTRY,
    AUTH,
    EBADREQ,
    EBADVERSION,
    EFENCED,
    EIO,
    ENOENTRY,
    ENOLEDGER,
    EOK,
    EREADONLY,
    ETOOMANYREQUESTS,
    EUA,
    EUNKNOWNLEDGERSTATE,
    FORCE_LEDGER,
    GET_BOOKIE_INFO,
    GET_LIST_OF_ENTRIES_OF_LEDGER,
    READ_ENTRY,
    READ_LAC,
    VERSION_THREE,
    WRITE_LAC,
    OperationType,
    Request,
    Response,
    StatusCode,
)
from protocol.varint import varint

STATUS: Final[Mapping[int, StatusCode.ValueType]] = {
    RC_OK: EOK,
    RC_NO_LEDGER: ENOLEDGER,
    RC_NO_ENTRY: ENOENTRY,
    RC_BAD_REQUEST: EBADREQ,
    RC_IO_ERROR: EIO,
    RC_UNAUTHORIZED: EUA,
    RC_BAD_VERSION: EBADVERSION,
    RC_FENCED: EFENCED,
    RC_READ_ONLY: EREADONLY,
    RC_TOO_MANY_REQUESTS: ETOOMANYREQUESTS,
    RC_UNKNOWN_LEDGER_STATE: EUNKNOWNLEDGERSTATE,
}
"""Status in v3 messages, by v2's result code."""
# Field number 1, the lowest, with wire type 0.
_FIRST_TAG = 8


def parse_request(packet: Buffer) -> Request | None:
    """Parses a packet; returns None when it is no v3 request, or one of an unknown operation."""
    if not packet or packet[0] < _FIRST_TAG:
        return None
    try:
        request = Request.FromString(bytes(packet))
    except DecodeError:
        return None
    # Python's protobuf accepts a message without its required fields; BookKeeper's Java refuses it.
    return request if request.IsInitialized() else None


# Answers. Each repeats operation and transaction id, is always version 3, and never carries a priority.


def answer_to(request: Request, rc: int) -> Response:
    """Builds the answer with the part of its operation; an operation without one gets the status alone."""
    response = Response(status=STATUS[rc])
    header = response.header
    header.version, header.operation = VERSION_THREE, request.header.operation
    header.txnId = request.header.txnId
    fill = _PARTS.get(header.operation)
    if fill is not None:
        fill(request, response)
    return response


def encode_message(message: Request | Response) -> bytes:
    """Returns the whole frame of a message."""
    packet = message.SerializeToString()
    return LENGTH.pack(len(packet)) + packet


def _read_part(request: Request, response: Response) -> None:
    asked, part = request.readRequest, response.readResponse
    part.status, part.ledgerId, part.entryId = response.status, asked.ledgerId, asked.entryId


def _add_part(request: Request, response: Response) -> None:
    asked, part = request.addRequest, response.addResponse
    part.status, part.ledgerId, part.entryId = response.status, asked.ledgerId, asked.entryId


def _auth_part(_request: Request, response: Response) -> None:
    response.authResponse.authPluginName = AUTH_DISABLED
    response.authResponse.payload = b""


def _write_lac_part(request: Request, response: Response) -> None:
    part = response.writeLacResponse
    part.status, part.ledgerId = response.status, request.writeLacRequest.ledgerId


def _read_lac_part(request: Request, response: Response) -> None:
    part = response.readLacResponse
    part.status, part.ledgerId = response.status, request.readLacRequest.ledgerId


def _force_part(request: Request, response: Response) -> None:
    part = response.forceLedgerResponse
    part.status, part.ledgerId = response.status, request.forceLedgerRequest.ledgerId


def _info_part(_request: Request, response: Response) -> None:
    response.getBookieInfoResponse.status = response.status


def _list_part(request: Request, response: Response) -> None:
    part = response.getListOfEntriesOfLedgerResponse
    part.status, part.ledgerId = response.status, request.getListOfEntriesOfLedgerRequest.ledgerId


_PARTS: Final[Mapping[OperationType.ValueType, Callable[[Request, Response], None]]] = {
    READ_ENTRY: _read_part,
    ADD_ENTRY: _add_part,
    AUTH: _auth_part,
    WRITE_LAC: _write_lac_part,
    READ_LAC: _read_lac_part,
    FORCE_LEDGER: _force_part,
    GET_BOOKIE_INFO: _info_part,
    GET_LIST_OF_ENTRIES_OF_LEDGER: _list_part,
}


# The answers to adds and reads are nearly all of the traffic, so they are written around prepared bytes. Field order and
# presence are those of the protobuf encoder.

_STATUS_FIELD: Final = {rc: varint(status) for rc, status in STATUS.items()}
_READ_HEADER: Final = b"\x08\x03\x10\x01\x18"
_ADD_HEADER: Final = b"\x08\x03\x10\x02\x18"
_UNSIGNED: Final = 2**64 - 1


def encode_add_answer(txn_id: int, rc: int, ledger_id: int, entry_id: int) -> bytes:
    """Returns the whole frame of the answer to an add; tests compare it with protobuf's."""
    status = _STATUS_FIELD[rc]
    header = _ADD_HEADER + varint(txn_id)
    part = b"\x08" + status + b"\x10" + varint(ledger_id & _UNSIGNED) + b"\x18" + varint(entry_id & _UNSIGNED)
    head = b"\x0a" + varint(len(header)) + header + b"\x10" + status + b"\xaa\x06" + varint(len(part))
    return LENGTH.pack(len(head) + len(part)) + head + part


def encode_entry_answer(txn_id: int, ledger_id: int, entry_id: int, entry: bytes, lac: int | None) -> bytes:
    """Returns the whole frame of a successful read. `lac` is the last add confirmed, None = unknown."""
    header = _READ_HEADER + varint(txn_id)
    part = b"\x08\0\x10" + varint(ledger_id & _UNSIGNED) + b"\x18" + varint(entry_id & _UNSIGNED)
    part += b"\x22" + varint(len(entry))
    tail = b"" if lac is None else b"\x28" + varint(lac & _UNSIGNED)
    part_bytes = len(part) + len(entry) + len(tail)
    head = b"\x0a" + varint(len(header)) + header + b"\x10\0\xa2\x06" + varint(part_bytes) + part
    length = len(head) - len(part) + part_bytes
    return b"".join((LENGTH.pack(length), head, entry, tail))
