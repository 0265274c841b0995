"""Questions before a client opens anything: partitions, owner, and the topics of a namespace."""

from __future__ import annotations

import re

from broker.model.errors import BrokerError, ServiceNotReady, TopicNotFound
from broker.model.topic_name import parse_topic_name
from broker.net.ports import Connection
from broker.net.topic_list_watcher import TopicListWatcher
from broker.service.topic_lists import compile_topics_pattern, matches, topics_hash
from protocol import answers
from protocol.errors import ProtocolError
from protocol.pulsar_api_pb2 import (
    BaseCommand,
    CommandGetTopicsOfNamespace,
    CommandLookupTopic,
    CommandPartitionedTopicMetadata,
    CommandWatchTopicList,
)

_NAMESPACE = re.compile(r"[-=:.\w]+/[-=:.\w]+", re.ASCII)


def partitioned_metadata(cnx: Connection, command: BaseCommand) -> None:
    request = command.partitionMetadata
    request_id = request.request_id

    def refuse(error: BrokerError) -> bytes:
        return answers.partitions_failed(request_id, error.code, str(error))

    cnx.run(_partitioned_metadata(cnx, request), refuse, "PARTITIONED_METADATA")


async def _partitioned_metadata(cnx: Connection, request: CommandPartitionedTopicMetadata) -> None:
    name = parse_topic_name(request.topic)
    create = request.metadata_auto_creation_enabled
    count = await cnx.ground.registry.partitions_or_create(name, create=create)
    cnx.send(answers.partitions(request.request_id, count))


def lookup(cnx: Connection, command: BaseCommand) -> None:
    """One broker owns every topic, so a lookup only has to check the name and say the URL."""
    request = command.lookupTopic
    try:
        cnx.send(answers.lookup(request.request_id, _owner_url(cnx, request)))
    except BrokerError as error:
        cnx.send(answers.lookup_failed(request.request_id, error.code, str(error)))


def _owner_url(cnx: Connection, request: CommandLookupTopic) -> str:
    name = parse_topic_name(request.topic)
    if not cnx.ground.registry.namespaces.exists(name.namespace):
        raise TopicNotFound("Namespace not found")
    listener = request.advertised_listener_name
    if not listener:
        return cnx.ground.service_url
    if listener not in cnx.ground.listeners:
        # The C++ client looks for these words.
        raise ServiceNotReady(f"the broker do not have {listener} listener")
    return cnx.ground.listeners[listener]


def topics_of_namespace(cnx: Connection, command: BaseCommand) -> None:
    request = command.getTopicsOfNamespace
    if not _NAMESPACE.fullmatch(request.namespace):
        raise ProtocolError(f"'{request.namespace}' is no namespace: tenant/namespace is expected")

    def refuse(error: BrokerError) -> bytes:
        return answers.error(request.request_id, error.code, str(error))

    cnx.run(_topics_of_namespace(cnx, request), refuse, "GET_TOPICS_OF_NAMESPACE")


async def _topics_of_namespace(cnx: Connection, request: CommandGetTopicsOfNamespace) -> None:
    mode = request.mode
    topics = await cnx.ground.registry.names(
        request.namespace,
        persistent=mode != CommandGetTopicsOfNamespace.NON_PERSISTENT,
        non_persistent=mode != CommandGetTopicsOfNamespace.PERSISTENT,
    )
    filtered = bool(request.topics_pattern)
    if filtered:
        pattern = compile_topics_pattern(request.topics_pattern)
        topics = [topic for topic in topics if matches(pattern, topic)]
    current = topics_hash(topics)
    changed = not request.topics_hash or request.topics_hash != current
    cnx.send(
        answers.topics_of_namespace(
            request.request_id, topics if changed else (), current, filtered=filtered, changed=changed
        )
    )


def watch_topic_list(cnx: Connection, command: BaseCommand) -> None:
    request = command.watchTopicList

    def refuse(error: BrokerError) -> bytes:
        return answers.error(request.request_id, error.code, str(error))

    cnx.run(_watch_topic_list(cnx, request), refuse, "WATCH_TOPIC_LIST")


async def _watch_topic_list(cnx: Connection, request: CommandWatchTopicList) -> None:
    """A watcher id that is in use keeps its first pattern, as in Pulsar."""
    watcher = cnx.watchers.get(request.watcher_id)
    if watcher is None:
        pattern = compile_topics_pattern(request.topics_pattern)
        names = await cnx.ground.registry.names(request.namespace, non_persistent=False)
        if not cnx.is_open:
            return
        watcher = cnx.watchers.get(request.watcher_id)  # Another request may have been quicker.
    if watcher is None:
        watcher = TopicListWatcher(
            cnx.ground.registry,
            cnx.send,
            request.watcher_id,
            request.namespace,
            pattern,
            [name for name in names if matches(pattern, name)],
        )
        cnx.watchers[request.watcher_id] = watcher
    current = topics_hash(watcher.topics)
    topics = () if request.topics_hash == current else sorted(watcher.topics)
    cnx.send(answers.watch_topic_list_success(request.request_id, request.watcher_id, topics, current))


def watch_topic_list_close(cnx: Connection, command: BaseCommand) -> None:
    request = command.watchTopicListClose
    watcher = cnx.watchers.pop(request.watcher_id, None)
    if watcher is not None:
        watcher.stop()
    cnx.send(answers.success(request.request_id))
