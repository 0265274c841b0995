"""Handlers of the requests that come before a producer or consumer: partitions, lookup, lists of topics."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable, Coroutine, Iterator

from broker.net.connection_limits import WATCHERS_MAX, check_count
from broker.net.ports import Connection
from broker.net.topic_list_watcher import WatchedList
from broker.security.authorization.access import Access, list_topics, look_up
from broker.service.topics.namespace_names import without_system
from broker.service.topics.topic_list_hash import TopicListHash
from broker.service.topics.topic_lists import PatternNotLinear, TopicsPattern, parts_of, topics_hash
from broker.service.topics.topic_registry import TopicRegistry
from foundation.loop.slices import in_slices
from foundation.model.errors import (
    BrokerError,
    InvalidTopicName,
    MetadataError,
    NotAllowed,
    ServiceNotReady,
    TooManyRequests,
    TopicNotFound,
)
from foundation.model.topic_name import PERSISTENT, SCALABLE, TopicName, parse_topic_name, shown
from protocol import answers
from protocol.errors import ProtocolError
from protocol.pulsar_api_pb2 import (
    BaseCommand,
    CommandGetTopicsOfNamespace,
    CommandLookupTopic,
    CommandPartitionedTopicMetadata,
)

log = logging.getLogger("magnetar.net")

# Slashes at the end count as nothing in Pulsar: no topic is listed there.
NAMESPACE = re.compile(r"[-=:.\w]+/[-=:.\w]+/*", re.ASCII)


def run_lookup(
    cnx: Connection,
    command: BaseCommand,
    work: Coroutine[object, object, None],
    refuse: Callable[[BrokerError], bytes],
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
    cnx.run(command, work, refuse, refusal_level=logging.DEBUG, at_end=context.end_lookup)


def partitioned_metadata(cnx: Connection, command: BaseCommand) -> None:
    """Answers PARTITIONED_METADATA with the number of partitions; may create the topic."""
    request = command.partitionMetadata
    request_id = request.request_id

    def refuse(error: BrokerError) -> bytes:
        return answers.partitions_failed(request_id, error.code, str(error))

    run_lookup(cnx, command, _partitioned_metadata(cnx, request), refuse)


def partitioned_access(cnx: Connection, command: BaseCommand) -> Iterator[Access]:
    """Yields the look-up of the topic. Raises TopicNotFound for a missing tenant."""
    name = parse_topic_name(command.partitionMetadata.topic)
    authorizer = cnx.context.authorizer
    if authorizer.enabled and not authorizer.tenant_exists(name.tenant):
        # As Apache's broker, here alone, and as the admin port: clients report a missing tenant in the user's own words.
        raise TopicNotFound(f"Tenant or namespace or topic does not exist: {name.namespace}")
    yield look_up(name)


async def _partitioned_metadata(cnx: Connection, request: CommandPartitionedTopicMetadata) -> None:
    name = parse_topic_name(request.topic)
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
    run_lookup(cnx, command, _lookup(cnx, request), refuse)


def lookup_access(cnx: Connection, command: BaseCommand) -> Iterator[Access]:
    """Yields the look-up of the topic."""
    yield look_up(_looked_up(cnx, command.lookupTopic.topic))


async def _lookup(cnx: Connection, request: CommandLookupTopic) -> None:
    registry = cnx.context.registry
    name = _looked_up(cnx, request.topic)
    if not await registry.namespaces.stored.has(name.namespace):
        raise TopicNotFound("Namespace not found")
    ownership = registry.ownership
    owner = await ownership.owner_of(name, authoritative=request.authoritative)
    listener = owner.addresses.listener(request.advertised_listener_name)
    if listener is None:
        # The C++ client looks for these words.
        raise ServiceNotReady(f"the broker do not have {request.advertised_listener_name} listener")
    if owner.is_redirect:
        cnx.send(
            answers.lookup_redirect(
                request.request_id, listener.url, listener.url_tls, authoritative=owner.authoritative
            )
        )
        return
    # With a store of its own the broker is the only one, and a client keeps to the address by which it came, perhaps a
    # mapped port of a container: as Pulsar's standalone. On a shared store no broker sets it, as Pulsar's brokers.
    through = not ownership.is_shared
    cnx.send(answers.lookup(request.request_id, listener.url, listener.url_tls, through_service_url=through))
    if registry.dormant.get(str(name)) is not None:
        # A task of its own, because the lookup is over.
        cnx.context.spawn(_wake(registry, name), f"{name} wakes")


async def _wake(registry: TopicRegistry, name: TopicName) -> None:
    """Opens a topic while its client prepares a PRODUCER or SUBSCRIBE, whose answer names what keeps it from that."""
    with contextlib.suppress(BrokerError):
        await registry.get(name, create=False)


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
    _check_namespace(request.namespace)

    def refuse(error: BrokerError) -> bytes:
        return answers.error(request.request_id, error.code, str(error))

    run_lookup(cnx, command, _topics_of_namespace(cnx, request), refuse)


def _check_namespace(name: str) -> None:
    """Raises ProtocolError for a malformed name. A missing namespace is an empty list: both as Pulsar 4.2.4 answers."""
    if not NAMESPACE.fullmatch(name):
        raise ProtocolError(f"'{shown(name[:100])}' is no namespace: tenant/namespace is expected")


def topics_access(cnx: Connection, command: BaseCommand) -> Iterator[Access]:
    """Yields the list of the namespace's topics."""
    yield list_topics(command.getTopicsOfNamespace.namespace)


async def _topics_of_namespace(cnx: Connection, request: CommandGetTopicsOfNamespace) -> None:
    mode = request.mode
    topics = without_system(
        await cnx.context.registry.names(
            request.namespace,
            persistent=mode != CommandGetTopicsOfNamespace.NON_PERSISTENT,
            non_persistent=mode != CommandGetTopicsOfNamespace.PERSISTENT,
        )
    )
    pattern = _pattern_to_apply(cnx, request.topics_pattern)
    filtered = pattern is not None
    if pattern is not None:
        topics = await pattern.choose(topics)
    now_ns = cnx.context.registry.now_ns
    current = await topics_hash(topics, now_ns)
    # A client without a hash has no list yet, so an absent hash never counts as equal.
    changed = not request.topics_hash or request.topics_hash != current
    parts = parts_of(topics if changed else ())
    encoded = [answers.names_of_namespace(part) async for part in in_slices(parts, now_ns)]
    cnx.send(
        answers.topics_of_namespace(request.request_id, encoded, current, filtered=filtered, changed=changed)
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
    _check_namespace(request.namespace)

    def refuse(error: BrokerError) -> bytes:
        return answers.error(request.request_id, error.code, str(error))

    run_lookup(cnx, command, _watch_topic_list(cnx, command), refuse)


def watch_access(cnx: Connection, command: BaseCommand) -> Iterator[Access]:
    """Yields the list of the namespace's topics."""
    yield list_topics(command.watchTopicList.namespace)


async def _watch_topic_list(cnx: Connection, command: BaseCommand) -> None:
    """Makes a watcher; an id in use keeps its first pattern, as in Pulsar."""
    request = command.watchTopicList
    watcher = cnx.watchers.get(request.watcher_id)
    if watcher is None:
        check_count(len(cnx.watchers), WATCHERS_MAX, "topic list watchers")
        pattern = _pattern_to_watch(cnx, request.topics_pattern)
        watchers, text = cnx.context.topic_list_watchers, request.topics_pattern
        shared = watchers.find(request.namespace, text)
        if shared is None:
            shared = await _list_to_watch(cnx, request.namespace, pattern)
        try:
            # A watcher made now would never be stopped: the connection has stopped its watchers already.
            if not cnx.is_open:
                return
            # Again, because the right may have been withdrawn while the list was read.
            cnx.require(command)
            # Other requests may have made watchers meanwhile, also one of the same id.
            check_count(len(cnx.watchers), WATCHERS_MAX, "topic list watchers")
            watcher = cnx.watchers.get(request.watcher_id)
            if watcher is None:
                # Another request may have made the list of this pattern meanwhile.
                watcher = watchers.add(request.watcher_id, cnx.send, request.namespace, text, shared)
                cnx.watchers[request.watcher_id] = watcher
        finally:
            if not shared.watchers:
                shared.unfollow()
    current = watcher.topics.hash()
    # A client that reconnects sends the hash of its list; an equal one spares the names.
    shown = () if request.topics_hash == current else watcher.topics.encoded()
    cnx.send(answers.watch_topic_list_success(request.request_id, request.watcher_id, shown, current))


async def _list_to_watch(cnx: Connection, namespace: str, pattern: TopicsPattern) -> WatchedList:
    """Reads a list; it follows the topics that come and go meanwhile, until it is returned."""
    registry = cnx.context.registry
    # Before the list is read, so that no change of another broker is missed.
    unfollow = await cnx.context.stored_changes.follow(namespace)
    # The list is read and filtered over several turns of the loop.
    meanwhile: list[tuple[TopicName, bool]] = []
    stop = registry.events.watch(namespace, lambda name, exists: meanwhile.append((name, exists)))
    try:
        topics = await pattern.choose(without_system(await registry.names(namespace, non_persistent=False)))
        listed = TopicListHash()
        async for _ in in_slices(listed.fill(topics), registry.now_ns):
            pass
    except BaseException:
        # A cancelled request, too, follows no more.
        unfollow()
        raise
    finally:
        stop()
    found = WatchedList(pattern, listed, unfollow)
    for name, exists in meanwhile:
        found.note(name, exists)
    return found


def watch_topic_list_close(cnx: Connection, command: BaseCommand) -> None:
    """Ends a watch; an unknown watcher id is answered with success too."""
    request = command.watchTopicListClose
    watcher = cnx.watchers.pop(request.watcher_id, None)
    if watcher is not None:
        watcher.stop()
    cnx.send(answers.success(request.request_id))
