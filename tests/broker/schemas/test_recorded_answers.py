"""Every recorded answer of Apache Pulsar 4.2.4 about schemas is ours too; `tests/data/schemas/README.md` has the format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from broker.schemas.compatibility import check_compatible
from broker.schemas.definitions import check_definition
from broker.schemas.schema import Schema, SchemaType
from broker.schemas.strategy import Strategy
from foundation.model.errors import IncompatibleSchema, InvalidSchemaData

DATA: Final = Path(__file__).parents[2] / "data" / "schemas"
Row = dict[str, Any]


def rows(file: str) -> list[Any]:
    lines = (DATA / file).read_text(encoding="utf-8").splitlines()
    found = [json.loads(line) for line in lines]
    return [
        pytest.param(row, id=f"{row.get('type', 'AVRO')}-{row['name']}".replace(" ", "-")) for row in found
    ]


def schema(row: Row, text: str) -> Schema:
    return Schema(SchemaType[row.get("type", "AVRO")], row[text].encode(errors="surrogatepass"), {})


def fits(row: Row, strategy: Strategy) -> bool:
    try:
        check_compatible(schema(row, "old"), schema(row, "new"), strategy)
    except IncompatibleSchema:
        return False
    return True


@pytest.mark.parametrize("row", rows("compatibility.jsonl"))
def test_strategies_decide_as_recorded(row: Row) -> None:
    assert fits(row, Strategy.BACKWARD) is row["backward"]
    assert fits(row, Strategy.FORWARD) is row["forward"]
    assert fits(row, Strategy.FULL) is (row["backward"] and row["forward"])
    assert fits(row, Strategy.ALWAYS_COMPATIBLE)
    assert not fits(row, Strategy.ALWAYS_INCOMPATIBLE)


@pytest.mark.parametrize("row", [row for row in rows("compatibility.jsonl") if "equal" in row.values[0]])
def test_pair_of_schemas_is_equal_as_recorded(row: Row) -> None:
    old, new = schema(row, "old"), schema(row, "new")
    hashes = [check_definition(one) or one.data_hash for one in (old, new)]
    assert (hashes[0] == hashes[1]) is row["equal"]


@pytest.mark.parametrize("row", rows("equality.jsonl"))
def test_variation_of_a_schema_is_equal_as_recorded(row: Row) -> None:
    hashes = {check_definition(schema(row, text)) for text in ("first", "second")}
    assert (len(hashes) == 1) is row["equal"]


@pytest.mark.parametrize("row", rows("validity.jsonl"))
def test_definition_is_accepted_as_recorded(row: Row) -> None:
    if row["accepted"]:
        check_definition(schema(row, "schema"))
    else:
        with pytest.raises(InvalidSchemaData):
            check_definition(schema(row, "schema"))
