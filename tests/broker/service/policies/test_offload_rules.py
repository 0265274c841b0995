"""Offload policies of topic and namespace over the broker's keys, member by member."""

from __future__ import annotations

from broker.managed_ledger.ledger_list import OffloadPlace
from broker.managed_ledger.settings import OffloadRules
from broker.service.policies.offload import OffloadPolicies, rules_of

BROKER = OffloadRules(
    OffloadPlace("S3", "broker", "r", "http://broker"), threshold_bytes=1, threshold_s=2, deletion_lag_ms=3
)


def test_the_first_level_that_sets_a_member_decides_it() -> None:
    topic = OffloadPolicies(threshold_s=20, bucket="topic")
    namespace = OffloadPolicies(
        threshold_s=200, deletion_lag_ms=300, read_priority="bookkeeper-first", s3_block_bytes=6 << 20
    )
    assert rules_of(BROKER, [topic, namespace]) == BROKER._replace(
        place=BROKER.place._replace(bucket="topic"),
        threshold_s=20,
        deletion_lag_ms=300,
        bookkeeper_first=True,
        block_bytes=64 << 20,
        read_bytes=1 << 20,
    )


def test_driver_is_known_in_any_case() -> None:
    assert rules_of(BROKER, [OffloadPolicies(driver="FileSystem")]).place.driver == "filesystem"
    assert rules_of(BROKER, [OffloadPolicies(driver="AWS-S3")]).place.driver == "aws-s3"


def test_folder_and_endpoint_stay_the_brokers() -> None:
    stranger = OffloadPolicies(
        endpoint="http://stranger", s3_endpoint="http://stranger", files_uri="file:///etc"
    )
    assert rules_of(BROKER, [stranger]).place == BROKER.place
