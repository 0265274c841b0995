"""A script decides which fault happens at which occurrence, and refuses faults that could never happen."""

from __future__ import annotations

import pytest

from broker.faults.script import BadFault, FaultScript, ScriptedFault


def happened(script: FaultScript, event: str, count: int) -> list[int]:
    return [number for number in range(1, count + 1) if script.happens(event) is not None]


@pytest.mark.parametrize(
    ("at", "times", "expected"),
    [(1, 1, [1]), (3, 1, [3]), (2, 2, [2, 3]), (4, 0, [4, 5, 6])],
)
def test_fault_happens_from_its_occurrence_on_as_often_as_asked(
    at: int, times: int, expected: list[int]
) -> None:
    script = FaultScript()
    fault = ScriptedFault("ACK", "drop", at=at, times=times)
    script.add(fault)
    assert happened(script, "SEND", 6) == []
    assert happened(script, "ACK", 6) == expected
    assert (fault.seen, fault.fired) == (6, len(expected))


def test_oldest_of_two_faults_happens_and_both_count() -> None:
    script = FaultScript()
    first, second = ScriptedFault("SEND", "drop"), ScriptedFault("SEND", "lose", at=2)
    script.add(first)
    script.add(second)
    assert script.happens("SEND") is first
    assert script.happens("SEND") is second
    assert (first.seen, second.seen) == (2, 2)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (ScriptedFault("SENT", "drop"), "on='SENT'"),
        (ScriptedFault("SEND", "explode"), "do='explode'"),
        (ScriptedFault("SEND", "drop", at=0), "at=0"),
        (ScriptedFault("SEND", "drop", times=-1), "times=-1"),
        (ScriptedFault("SEND", "delay"), "seconds=0.0"),
        (ScriptedFault("SEND", "delay", seconds=float("nan")), "seconds=nan"),
        (ScriptedFault("SEND", "drop", seconds=1), "seconds=1"),
        (ScriptedFault("SEND", "refuse"), "error=''"),
        (ScriptedFault("SEND", "refuse", error="FullDisk"), "error='FullDisk'"),
        (ScriptedFault("SEND", "lose", error="ServiceNotReady"), "error='ServiceNotReady'"),
        (ScriptedFault("ACK", "refuse", error="ServiceNotReady"), "no answer with an error"),
        (ScriptedFault("SEND", "unload"), "topic=''"),
        (ScriptedFault("SEND", "unload", topic="t"), "topic='t'"),
        (ScriptedFault("SEND", "drop", topic="persistent://a/b/t"), "topic='persistent"),
        (ScriptedFault("STORAGE_ADD", "unload", topic="persistent://a/b/t"), "can be delayed or refused"),
        (ScriptedFault("STORAGE_ADD", "drop"), "can be delayed or refused"),
        (ScriptedFault("METADATA_WRITE", "refuse", error="FullDisk"), "error='FullDisk'"),
    ],
)
def test_fault_that_cannot_happen_is_refused(fault: ScriptedFault, said: str) -> None:
    script = FaultScript()
    with pytest.raises(BadFault, match=said.replace("'", ".")):
        script.add(fault)
    assert script.faults == {}


def test_unload_fires_only_while_its_topic_is_open() -> None:
    script, closed = FaultScript(), list[str]()
    topic = "persistent://public/default/t"
    fault = ScriptedFault("SEND", "unload", topic=topic, times=2)
    script.add(fault)
    assert happened(script, "SEND", 1) == []

    def unload(name: str) -> bool:
        closed.append(name)
        return True

    script.unload = unload
    assert happened(script, "SEND", 2) == [1]
    assert (fault.seen, fault.fired, closed) == (3, 1, [topic])


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (ScriptedFault("SEND_RECIEPT", "drop"), "did you mean SEND_RECEIPT"),
        (ScriptedFault("ack", "drop"), "did you mean ACK"),
        (ScriptedFault("SEND", "dropp"), "did you mean drop"),
        (ScriptedFault("LOOKUP", "refuse", error="ServiceNotRedy"), "did you mean ServiceNotReady"),
        (ScriptedFault("STORAGE_ADD", "refuse", error="fulldisk"), "did you mean FullDisk"),
    ],
)
def test_misspelt_fault_is_refused_with_the_nearest_name(fault: ScriptedFault, said: str) -> None:
    with pytest.raises(BadFault, match=said):
        FaultScript().add(fault)
