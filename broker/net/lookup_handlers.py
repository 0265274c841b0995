"""Handlers of the requests that come before a producer or consumer: partitions, lookup, lists of topics."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Coroutine

from broker.net.connection_context import ConnectionContext
from broker.net.connection_limits import WATCHERS_MAX, check_count
from broker.net.ports import Connection
from broker.net.rights import require_list, require_look_up
from broker.net.topic_list_watcher import TopicListWatcher
from broker.service.topics.topic_lists import PatternNotLinear, TopicsPattern, topics_hash
from foundation.model.errors import (
    BrokerError,
    InvalidTopicName,
    MetadataError,
    NotAllowed,
    ServiceNotReady,
    TooManyRequests,
    TopicNotFound,
)
from foundation.model.topic_name import PERSISTENT, SCALABLE, TopicName, parse_topic_name
from protocol import answers
from protocol.errors import ProtocolError
from protocol.pulsar_api_pb2 import (
    BaseCommand,
    CommandGetTopicsOfNamespace,
    CommandLookupTopic,
    CommandPartitionedTopicMetadata,
    CommandWatchTopicList,
)

log = logging.getLogger("magnetar.net")

NAMESPACE = re.compile(r"[-=:.\w]+/[-=:.\w]+", re.ASCII)


def run_lookup(
    cnx: Connection,
    work: Coroutine[object, object, None],
    refuse: Callable[[BrokerError], bytes],
    name: str,
) -> None:
    """Runs a request of the kind of a lookup, unless `maxConcurrentLookupRequest` of them are in progress."""
    context = cnx.context
    if context.lookups >= context.settings.lookups_max:
        work.close()
        cnx.send(refuse(TooManyRequests("Failed due to too many pending lookup requests")))
        return
    context.lookups += 1
    # At level debug, because clients repeat a refused lookup for as long as their application waits for the topic: one
    # client with a wrong namespace would fill the log.
    cnx.run(_counted(context, work), refuse, name, logging.DEBUG)


async def _counted(context: ConnectionContext, work: Coroutine[object, object, None]) -> None:
    try:
        await work
    finally:
        context.lookups -= 1


def partitioned_metadata(cnx: Connection, command: BaseCommand) -> None:
    """Answers PARTITIONED_METADATA with the number of partitions; may create the topic."""
    request = command.partitionMetadata
    request_id = request.request_id

    def refuse(error: BrokerError) -> bytes:
        return answers.partitions_failed(request_id, error.code, str(error))

    run_lookup(cnx, _partitioned_metadata(cnx, request), refuse, "PARTITIONED_METADATA")


async def _partitioned_metadata(cnx: Connection, request: CommandPartitionedTopicMetadata) -> None:
    name = parse_topic_name(request.topic)
    authorizer = cnx.context.authorizer
    if authorizer.enabled and not authorizer.tenant_exists(name.tenant):
        # As Apache's broker, here alone, and as the admin port: clients report a missing tenant in the user's own words.
        raise TopicNotFound(f"Tenant or namespace or topic does not exist: {name.namespace}")
    require_look_up(cnx, name, "PARTITIONED_METADATA")
    create = request.metadata_auto_creation_enabled
    count = await cnx.context.partitioned.count_or_create(name, create=create)
    cnx.send(answers.partitions(request.request_id, count))


def lookup(cnx: Connection, command: BaseCommand) -> None:
    """Answers LOOKUP with the URL of the topic's owner; the client connects to it and opens its producer there."""
    request = command.lookupTopic

    def refuse(error: BrokerError) -> bytes:
        return answers.lookup_failed(request.request_id, error.code, str(error))

    # A task, because `owner_of` may wait: with several brokers it reads the owner from the metadata store. A client
    # sends one LOOKUP per topic that it opens, so the task costs nothing on the way of a message.
    run_lookup(cnx, _lookup(cnx, request), refuse, "LOOKUP")


async def _lookup(cnx: Connection, request: CommandLookupTopic) -> None:
    registry = cnx.context.registry
    name = _looked_up(cnx, request.topic)
    require_look_up(cnx, name, "LOOKUP")
    if not registry.namespaces.exists(name.namespace):
        raise TopicNotFound("Namespace not found")
    owner = await registry.ownership.owner_of(name)
    listener = owner.listener(request.advertised_listener_name)
    if listener is None:
        # The C++ client looks for these words.
        raise ServiceNotReady(f"the broker do not have {request.advertised_listener_name} listener")
    cnx.send(answers.lookup(request.request_id, listener.url, listener.url_tls))


def _looked_up(cnx: Connection, topic: str) -> TopicName:
    """Returns the topic of a lookup. For `topic://` it is the ordinary one: SCALABLE_TOPIC_LOOKUP, the client's next
    request, says that there are no scalable topics.
    """
    ordinary = topic.removeprefix(SCALABLE)
    if cnx.context.settings.scalable_topics and ordinary != topic:
        return parse_topic_name(f"{PERSISTENT}://{ordinary}")
    return parse_topic_name(topic)


def topics_of_namespace(cnx: Connection, command: BaseCommand) -> None:
    """Answers GET_TOPICS_OF_NAMESPACE; names are left out when the client's hash shows that it has them."""
    request = command.getTopicsOfNamespace
    # A malformed name ends the connection, a missing namespace is an empty list: both recorded of Pulsar 4.2.4.
    if not NAMESPACE.fullmatch(request.namespace):
        raise ProtocolError(f"'{request.namespace}' is no namespace: tenant/namespace is expected")

    def refuse(error: BrokerError) -> bytes:
        return answers.error(request.request_id, error.code, str(error))

    run_lookup(cnx, _topics_of_namespace(cnx, request), refuse, "GET_TOPICS_OF_NAMESPACE")


async def _topics_of_namespace(cnx: Connection, request: CommandGetTopicsOfNamespace) -> None:
    require_list(cnx, request.namespace, "GET_TOPICS_OF_NAMESPACE")
    mode = request.mode
    topics = await cnx.context.registry.names(
        request.namespace,
        persistent=mode != CommandGetTopicsOfNamespace.NON_PERSISTENT,
        non_persistent=mode != CommandGetTopicsOfNamespace.PERSISTENT,
    )
    pattern = _pattern_to_apply(cnx, request.topics_pattern)
    filtered = pattern is not None
    if pattern is not None:
        topics = await pattern.choose(topics)
    current = topics_hash(topics)
    # A client without a hash has no list yet, so an absent hash never counts as equal.
    changed = not request.topics_hash or request.topics_hash != current
    cnx.send(
        answers.topics_of_namespace(
            request.request_id, topics if changed else (), current, filtered=filtered, changed=changed
        )
    )


def _pattern_to_apply(cnx: Connection, text: str) -> TopicsPattern | None:
    """Returns the pattern that the broker evaluates; None leaves the choice to the client, as Pulsar does.

    MetadataError for an invalid pattern.
    """
    settings = cnx.context.settings
    if not text or not settings.evaluates_patterns or len(text) > settings.pattern_length_max:
        return None
    try:
        return TopicsPattern(text)
    except PatternNotLinear as error:
        log.info("! %s chooses topics itself: %s", cnx.address, error)
        return None


def _pattern_to_watch(cnx: Connection, text: str) -> TopicsPattern:
    """Returns the pattern of a watch. Raises NotAllowed where Pulsar does, InvalidTopicName for an invalid pattern."""
    settings = cnx.context.settings
    if not settings.evaluates_patterns:
        raise NotAllowed("Unable to create topic list watcher: Evaluating subscription patterns is disabled.")
    if len(text) > settings.pattern_length_max:
        raise NotAllowed(
            f"Unable to create topic list watcher: Pattern longer than maximum: {settings.pattern_length_max}"
        )
    try:
        return TopicsPattern(text)
    except MetadataError as error:
        # The same mistake has another code than in GET_TOPICS_OF_NAMESPACE, as asked of Pulsar 4.2.4.
        raise InvalidTopicName(str(error)) from None


def watch_topic_list(cnx: Connection, command: BaseCommand) -> None:
    """Answers WATCH_TOPIC_LIST with the matching topics; reports later changes (PIP-145)."""
    request = command.watchTopicList

    def refuse(error: BrokerError) -> bytes:
        return answers.error(request.request_id, error.code, str(error))

    run_lookup(cnx, _watch_topic_list(cnx, request), refuse, "WATCH_TOPIC_LIST")


async def _watch_topic_list(cnx: Connection, request: CommandWatchTopicList) -> None:
    """Makes a watcher; an id in use keeps its first pattern, as in Pulsar."""
    require_list(cnx, request.namespace, "WATCH_TOPIC_LIST")
    watcher = cnx.watchers.get(request.watcher_id)
    if watcher is None:
        check_count(len(cnx.watchers), WATCHERS_MAX, "topic list watchers")
        pattern = _pattern_to_watch(cnx, request.topics_pattern)
        registry = cnx.context.registry
        # Topics that come and go while the list is read and filtered, over several turns of the loop.
        meanwhile: list[tuple[TopicName, bool]] = []
        stop = registry.watch(lambda name, exists: meanwhile.append((name, exists)))
        try:
            topics = await pattern.choose(await registry.names(request.namespace, non_persistent=False))
        finally:
            stop()
        # A watcher made now would never be stopped: the connection has stopped its watchers already.
        if not cnx.is_open:
            return
        # Again, because the right may have been withdrawn while the list was read.
        require_list(cnx, request.namespace, "WATCH_TOPIC_LIST")
        # Other requests may have made watchers meanwhile, also one of the same id.
        check_count(len(cnx.watchers), WATCHERS_MAX, "topic list watchers")
        watcher = cnx.watchers.get(request.watcher_id)
    if watcher is None:
        watcher = TopicListWatcher(
            registry,
            cnx.send,
            watcher_id=request.watcher_id,
            namespace=request.namespace,
            pattern=pattern,
            topics=topics,
        )
        for name, exists in meanwhile:
            watcher.note(name, exists)
        cnx.watchers[request.watcher_id] = watcher
    current = watcher.topics.hash()
    # A client that reconnects sends the hash of its list; an equal one spares the names.
    shown = () if request.topics_hash == current else list(watcher.topics)
    cnx.send(answers.watch_topic_list_success(request.request_id, request.watcher_id, shown, current))


def watch_topic_list_close(cnx: Connection, command: BaseCommand) -> None:
    """Ends a watch; an unknown watcher id is answered with success too."""
    request = command.watchTopicListClose
    watcher = cnx.watchers.pop(request.watcher_id, None)
    if watcher is not None:
        watcher.stop()
    cnx.send(answers.success(request.request_id))
