"""Values of JSON in Avro's binary form."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.schemas.avro_schema import parse_avro
from broker.schemas.decoding import decode_avro
from broker.schemas.encoding import Unencodable, encode

SCHEMA: Final = parse_avro(
    json.dumps(
        {
            "type": "record",
            "name": "R",
            "fields": [
                {"name": "i", "type": "int"},
                {"name": "l", "type": ["null", "long"]},
                {"name": "d", "type": "double"},
                {"name": "s", "type": {"type": "array", "items": "string"}},
                {"name": "m", "type": {"type": "map", "values": ["null", "boolean"]}},
            ],
        }
    ).encode()
)


@given(
    st.fixed_dictionaries(
        {
            "i": st.integers(-(2**31), 2**31 - 1),
            "l": st.none() | st.integers(-(2**63), 2**63 - 1),
            "d": st.floats(allow_nan=False, allow_infinity=False),
            "s": st.lists(st.text()),
            "m": st.dictionaries(st.text(), st.none() | st.booleans()),
        }
    )
)
def test_encoded_values_are_decoded_again(value: Any) -> None:
    assert decode_avro(SCHEMA, encode(SCHEMA, value)) == value


@pytest.mark.parametrize(
    "change", [{"i": 2**31}, {"i": True}, {"l": "1"}, {"d": None}, {"s": [1]}, {"m": {"a": 1}}, {"s": None}]
)
def test_value_that_does_not_fit_is_refused(change: dict[str, Any]) -> None:
    value = {"i": 1, "l": None, "d": 0.5, "s": [], "m": {}, **change}
    with pytest.raises(Unencodable):
        encode(SCHEMA, value)
