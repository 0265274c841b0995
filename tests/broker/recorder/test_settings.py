"""The recorder's settings read the right keys in the right units."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.compose.room_settings import record_settings
from broker.config import load_broker_settings
from broker.recorder.settings import RecordSettings
from foundation.settings.errors import SettingsError

ADDRESS = ("advertisedAddress=[fe80::1]", "brokerServicePort=6651")


def made(*overrides: str) -> RecordSettings | None:
    return record_settings(load_broker_settings(None, environ={}, overrides=(*ADDRESS, *overrides)))


def test_settings_record_nothing_without_a_folder() -> None:
    assert made() is None


def test_settings_pass_each_key_to_the_recorder() -> None:
    assert made(
        "entryCacheRecordDirectory=some/where",
        "entryCacheRecordSample=0.25",
        "entryCacheRecordFileMB=3",
        "entryCacheRecordFileSeconds=7",
        "entryCacheRecordBufferRows=11",
        "entryCacheRecordKeptMB=5",
    ) == RecordSettings(
        directory=Path("some/where"),
        broker="_fe80__1_-6651",
        sample=0.25,
        file_bytes=3 << 20,
        file_seconds=7,
        buffer_rows=11,
        kept_bytes=5 << 20,
    )


@pytest.mark.parametrize(
    "override",
    [
        "entryCacheRecordSample=0",
        "entryCacheRecordSample=1.5",
        "entryCacheRecordFileMB=0",
        "entryCacheRecordFileSeconds=0",
        "entryCacheRecordBufferRows=0",
        "entryCacheRecordKeptMB=-1",
    ],
)
def test_value_out_of_range_is_refused(override: str) -> None:
    with pytest.raises(SettingsError, match=override.partition("=")[0]):
        made(override)
