"""Offload policies of topic and namespace over the broker's keys, member by member."""

from __future__ import annotations

import pytest

from broker.managed_ledger.ledger_list import OffloadPlace
from broker.managed_ledger.settings import OffloadRules
from broker.offload.storages import open_storage
from broker.service.policies.offload import OffloadPolicies, rules_of
from foundation.model.errors import PersistenceError

S3 = OffloadPlace("S3", "broker", "r", "http://broker")
FOLDER = OffloadPlace("filesystem", endpoint="file:///a")
BROKER = OffloadRules(S3, FOLDER, S3, threshold_bytes=1, threshold_s=2, deletion_lag_ms=3)


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


@pytest.mark.parametrize("own", [S3, FOLDER, OffloadPlace("")])
def test_driver_of_a_policy_has_its_own_place_among_the_brokers_keys(own: OffloadPlace) -> None:
    broker = BROKER._replace(place=own)
    files = OffloadPolicies(driver="filesystem", bucket="b", region="q", endpoint="http://stranger")
    assert rules_of(broker, [files]).place == FOLDER
    for driver in ("aws-s3", "S3"):
        found = rules_of(broker, [OffloadPolicies(driver=driver, bucket="b", s3_endpoint="http://stranger")])
        assert found.place == OffloadPlace(driver, "b", "r", "http://broker")


@pytest.mark.parametrize("driver", ["filesystem", "S3"])
def test_storage_without_its_place_is_never_opened(driver: str) -> None:
    # As it is where the policy was stored past this broker.
    place = rules_of(OffloadRules(), [OffloadPolicies(driver=driver, bucket="b")]).place
    with pytest.raises(PersistenceError, match=r"fileSystemURI|ServiceEndpoint"):
        open_storage(place)


def test_region_of_a_policy_makes_no_other_host() -> None:
    place = rules_of(OffloadRules(), [OffloadPolicies(driver="aws-s3", bucket="b", region="x.evil/#")]).place
    with pytest.raises(PersistenceError, match="s3ManagedLedgerOffloadRegion"):
        open_storage(place)


@pytest.mark.parametrize("priority", ["bookkeeper-first", "BOOKKEEPER_FIRST"])
def test_read_priority_has_two_spellings(priority: str) -> None:
    assert rules_of(BROKER, [OffloadPolicies(read_priority=priority)]).bookkeeper_first
