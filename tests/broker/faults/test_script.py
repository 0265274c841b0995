"""A script decides which fault happens at which occurrence, and refuses faults that could never happen."""

from __future__ import annotations

import pytest

from broker.faults.script import BadFault, Fault, FaultScript


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
    fault = Fault("ACK", "drop", at=at, times=times)
    script.add(fault)
    assert happened(script, "SEND", 6) == []
    assert happened(script, "ACK", 6) == expected
    assert (fault.seen, fault.fired) == (6, len(expected))


def test_oldest_of_two_faults_happens_and_both_count() -> None:
    script = FaultScript()
    first, second = Fault("SEND", "drop"), Fault("SEND", "lose", at=2)
    script.add(first)
    script.add(second)
    assert script.happens("SEND") is first
    assert script.happens("SEND") is second
    assert (first.seen, second.seen) == (2, 2)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Fault("SENT", "drop"), "on='SENT'"),
        (Fault("SEND", "explode"), "do='explode'"),
        (Fault("SEND", "drop", at=0), "at=0"),
        (Fault("SEND", "drop", times=-1), "times=-1"),
        (Fault("SEND", "delay"), "seconds=0.0"),
        (Fault("SEND", "delay", seconds=float("nan")), "seconds=nan"),
        (Fault("SEND", "drop", seconds=1), "seconds=1"),
        (Fault("SEND", "refuse"), "error=''"),
        (Fault("SEND", "refuse", error="FullDisk"), "error='FullDisk'"),
        (Fault("SEND", "lose", error="ServiceNotReady"), "error='ServiceNotReady'"),
        (Fault("ACK", "refuse", error="ServiceNotReady"), "no answer with an error"),
        (Fault("SEND", "unload"), "topic=''"),
        (Fault("SEND", "unload", topic="t"), "topic='t'"),
        (Fault("SEND", "drop", topic="persistent://a/b/t"), "topic='persistent"),
        (Fault("STORAGE_ADD", "unload", topic="persistent://a/b/t"), "can be delayed or refused"),
        (Fault("STORAGE_ADD", "drop"), "can be delayed or refused"),
        (Fault("METADATA_WRITE", "refuse", error="FullDisk"), "error='FullDisk'"),
    ],
)
def test_fault_that_cannot_happen_is_refused(fault: Fault, said: str) -> None:
    script = FaultScript()
    with pytest.raises(BadFault, match=said.replace("'", ".")):
        script.add(fault)
    assert script.faults == {}


def test_unload_fires_only_while_its_topic_is_open() -> None:
    script, closed = FaultScript(), list[str]()
    topic = "persistent://public/default/t"
    fault = Fault("SEND", "unload", topic=topic, times=2)
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
        (Fault("SEND_RECIEPT", "drop"), "did you mean SEND_RECEIPT"),
        (Fault("ack", "drop"), "did you mean ACK"),
        (Fault("SEND", "dropp"), "did you mean drop"),
        (Fault("LOOKUP", "refuse", error="ServiceNotRedy"), "did you mean ServiceNotReady"),
        (Fault("STORAGE_ADD", "refuse", error="fulldisk"), "did you mean FullDisk"),
    ],
)
def test_misspelt_fault_is_refused_with_the_nearest_name(fault: Fault, said: str) -> None:
    with pytest.raises(BadFault, match=said):
        FaultScript().add(fault)
