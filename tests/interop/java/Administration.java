import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.admin.LongRunningProcessStatus;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.admin.PulsarAdminException;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.MessageIdAdv;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.common.policies.data.AuthAction;
import org.apache.pulsar.common.policies.data.AutoTopicCreationOverride;
import org.apache.pulsar.common.policies.data.BacklogQuota;
import org.apache.pulsar.common.policies.data.ClusterData;
import org.apache.pulsar.common.policies.data.DispatchRate;
import org.apache.pulsar.common.policies.data.FailureDomain;
import org.apache.pulsar.common.policies.data.PersistencePolicies;
import org.apache.pulsar.common.policies.data.PersistentTopicInternalStats;
import org.apache.pulsar.common.policies.data.PublishRate;
import org.apache.pulsar.common.policies.data.RetentionPolicies;
import org.apache.pulsar.common.policies.data.SchemaCompatibilityStrategy;
import org.apache.pulsar.common.policies.data.SubscriptionStats;
import org.apache.pulsar.common.policies.data.TenantInfo;
import org.apache.pulsar.common.policies.data.TopicStats;
import org.apache.pulsar.common.policies.data.TopicType;
import org.apache.pulsar.common.schema.SchemaInfo;

/**
 * The official Java admin client: `java Administration.java PULSAR_URL ADMIN_URL [CHECK...]` runs the checks, each in a
 * namespace of its own, and prints a line for each: `ok NAME` or `failed NAME: REASON`. It exits 0 when all were run.
 */
public final class Administration {
    interface Check {
        void run(Administration bench) throws Exception;
    }

    interface Attempt {
        void run() throws Exception;
    }

    interface Condition {
        boolean holds() throws Exception;
    }

    public static final class First {
        public int number;
    }

    public static final class Second {
        public int number;
        public String note;
    }

    public static final class Demanding {
        public int number;
        public long missing;
    }

    static final int WAIT_S = 60;
    static final int POLL_MS = 50;
    static final String CLUSTER = "standalone";
    static final Map<String, Check> CHECKS = new LinkedHashMap<>();

    static {
        CHECKS.put("clusters", Administration::clusters);
        CHECKS.put("failure_domains", Administration::failureDomains);
        CHECKS.put("brokers", Administration::brokers);
        CHECKS.put("tenants", Administration::tenants);
        CHECKS.put("namespaces", Administration::namespaces);
        CHECKS.put("namespace_policies", Administration::namespacePolicies);
        CHECKS.put("namespace_properties", Administration::namespaceProperties);
        CHECKS.put("bundles", Administration::bundles);
        CHECKS.put("topics", Administration::topics);
        CHECKS.put("topic_policies", Administration::topicPolicies);
        CHECKS.put("partitioned_topics", Administration::partitioned);
        CHECKS.put("terminate_and_truncate", Administration::terminateAndTruncate);
        CHECKS.put("subscriptions", Administration::subscriptions);
        CHECKS.put("skip", Administration::skip);
        CHECKS.put("expire", Administration::expire);
        CHECKS.put("reset_cursor", Administration::resetCursor);
        CHECKS.put("messages", Administration::messages);
        CHECKS.put("schemas", Administration::schemas);
        CHECKS.put("permissions", Administration::permissions);
        CHECKS.put("stats", Administration::stats);
        CHECKS.put("compaction", Administration::compaction);
    }

    final PulsarAdmin admin;
    final PulsarClient client;
    /** Ends the names of clusters and tenants, which must be unknown to the broker. */
    final String unique;
    final String namespace;
    final String topic;

    Administration(PulsarAdmin admin, PulsarClient client, String tenant, String unique) {
        this.admin = admin;
        this.client = client;
        this.unique = unique;
        this.namespace = tenant + "/" + unique;
        this.topic = "persistent://" + namespace + "/t";
    }

    public static void main(String[] arguments) throws Exception {
        String run = Long.toHexString(System.nanoTime());
        String tenant = "java-" + run;
        List<String> wanted = List.of(arguments).subList(2, arguments.length);
        PulsarAdmin admin = PulsarAdmin.builder()
                .serviceHttpUrl(arguments[1])
                .requestTimeout(WAIT_S, TimeUnit.SECONDS)
                .build();
        PulsarClient client = PulsarClient.builder()
                .serviceUrl(arguments[0])
                .operationTimeout(WAIT_S, TimeUnit.SECONDS)
                .build();
        admin.tenants().createTenant(tenant, ofCluster(Set.of()));
        for (Map.Entry<String, Check> check : CHECKS.entrySet()) {
            if (!wanted.isEmpty() && !wanted.contains(check.getKey())) {
                continue;
            }
            String unique = check.getKey() + "-" + run;
            try {
                Administration bench = new Administration(admin, client, tenant, unique);
                admin.namespaces().createNamespace(bench.namespace);
                check.getValue().run(bench);
                System.out.println("ok " + check.getKey());
            } catch (Exception | AssertionError failure) {
                String reason = String.valueOf(failure).replace('\n', ' ');
                System.out.println("failed " + check.getKey() + ": " + reason + at(failure));
            }
        }
        Runtime.getRuntime().halt(0);
    }

    /** Returns the line of this file that a failure comes from. */
    static String at(Throwable failure) {
        for (StackTraceElement frame : failure.getStackTrace()) {
            if (frame.getClassName().equals("Administration") && !frame.getMethodName().startsWith("expect")) {
                return " (line " + frame.getLineNumber() + ")";
            }
        }
        return "";
    }

    static TenantInfo ofCluster(Set<String> roles) {
        return TenantInfo.builder()
                .adminRoles(roles)
                .allowedClusters(Set.of(CLUSTER))
                .build();
    }

    static void expect(boolean good, Object found) {
        if (!good) {
            throw new AssertionError(String.valueOf(found));
        }
    }

    static void expectEqual(Object found, Object wanted) {
        expect(Objects.equals(found, wanted), found + " is not " + wanted);
    }

    static void expectRefused(int status, Attempt attempt) throws Exception {
        try {
            attempt.run();
        } catch (PulsarAdminException refusal) {
            expectEqual(refusal.getStatusCode(), status);
            return;
        }
        throw new AssertionError("accepted instead of " + status);
    }

    static void expectSoon(String wanted, Condition condition) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
        while (!condition.holds()) {
            expect(System.nanoTime() < deadline, "not within " + WAIT_S + " s: " + wanted);
            Thread.sleep(POLL_MS);
        }
    }

    /** Ignores the 409 of a broker that finds no old message, or that still works on the last request. */
    static void retried(Attempt attempt) throws Exception {
        try {
            attempt.run();
        } catch (PulsarAdminException.ConflictException expected) {
            expectEqual(expected.getStatusCode(), 409);
        }
    }

    static Set<String> sorted(Iterable<String> names) {
        Set<String> found = new TreeSet<>();
        names.forEach(found::add);
        return found;
    }

    /** Sends `message 0`, `message 1` … in an entry each, and returns their ids. */
    MessageId[] publish(String name, int count) throws Exception {
        MessageId[] ids = new MessageId[count];
        try (Producer<byte[]> producer =
                client.newProducer().topic(name).enableBatching(false).create()) {
            for (int number = 0; number < count; number++) {
                ids[number] = producer.send(("message " + number).getBytes(StandardCharsets.UTF_8));
            }
        }
        return ids;
    }

    static void expectText(Message<byte[]> message, String text) {
        expectEqual(new String(message.getData(), StandardCharsets.UTF_8), text);
    }

    SubscriptionStats subscription(String name) throws Exception {
        return admin.topics().getStats(topic).getSubscriptions().get(name);
    }

    long backlog(String name) throws Exception {
        return subscription(name).getMsgBacklog();
    }

    // Checks.

    void clusters() throws Exception {
        String own = "west-" + unique;
        ClusterData.Builder data =
                ClusterData.builder().serviceUrl("http://west:8080").brokerServiceUrl("pulsar://west:6650");
        admin.clusters().createCluster(own, data.build());
        expect(admin.clusters().getClusters().containsAll(List.of(CLUSTER, own)), admin.clusters().getClusters());
        expectEqual(admin.clusters().getCluster(own).getServiceUrl(), "http://west:8080");
        expectRefused(409, () -> admin.clusters().createCluster(own, data.build()));
        admin.clusters().updateCluster(own, data.serviceUrl("http://west:8081").build());
        expectEqual(admin.clusters().getCluster(own).getServiceUrl(), "http://west:8081");
        admin.clusters().updatePeerClusterNames(own, new LinkedHashSet<>(List.of(CLUSTER)));
        expectEqual(Set.copyOf(admin.clusters().getPeerClusterNames(own)), Set.of(CLUSTER));
        admin.clusters().deleteCluster(own);
        expectRefused(404, () -> admin.clusters().getCluster(own));
    }

    void failureDomains() throws Exception {
        FailureDomain domain = FailureDomain.builder().brokers(Set.of("a-" + unique + ":8080")).build();
        admin.clusters().createFailureDomain(CLUSTER, unique, domain);
        expectEqual(admin.clusters().getFailureDomain(CLUSTER, unique).getBrokers(), domain.getBrokers());
        expect(admin.clusters().getFailureDomains(CLUSTER).containsKey(unique), "not in the list");
        admin.clusters().deleteFailureDomain(CLUSTER, unique);
        expectRefused(404, () -> admin.clusters().getFailureDomain(CLUSTER, unique));
    }

    void brokers() throws Exception {
        admin.brokers().healthcheck();
        expectEqual(admin.brokers().getActiveBrokers().size(), 1);
        expectEqual(
                admin.brokers().getLeaderBroker().getBrokerId(),
                admin.brokers().getActiveBrokers().get(0));
        expect(admin.brokers().getDynamicConfigurationNames().contains("maxConcurrentLookupRequest"), "keys");
        admin.brokers().updateDynamicConfiguration("maxConcurrentLookupRequest", "40000");
        expectEqual(
                admin.brokers().getAllDynamicConfigurations().get("maxConcurrentLookupRequest"), "40000");
        admin.brokers().deleteDynamicConfiguration("maxConcurrentLookupRequest");
        expect(!admin.brokers().getAllDynamicConfigurations().containsKey("maxConcurrentLookupRequest"), "still set");
        expect(!admin.brokers().getRuntimeConfigurations().isEmpty(), "no settings");
        expect(!admin.brokers().getVersion().isEmpty(), "no version");
        expect(!admin.brokerStats().getMetrics().isEmpty(), "no metrics");
        expect(!admin.brokerStats().getTopics().isEmpty(), "no topics");
    }

    void tenants() throws Exception {
        String own = "tenant-" + unique;
        admin.tenants().createTenant(own, ofCluster(Set.of("a")));
        expect(admin.tenants().getTenants().contains(own), "not in the list");
        expectRefused(409, () -> admin.tenants().createTenant(own, ofCluster(Set.of("a"))));
        admin.tenants().updateTenant(own, ofCluster(Set.of("a", "b")));
        expectEqual(admin.tenants().getTenantInfo(own).getAdminRoles(), Set.of("a", "b"));
        admin.namespaces().createNamespace(own + "/n");
        expectRefused(409, () -> admin.tenants().deleteTenant(own));
        admin.namespaces().deleteNamespace(own + "/n");
        admin.tenants().deleteTenant(own);
        expectRefused(404, () -> admin.tenants().getTenantInfo(own));
    }

    void namespaces() throws Exception {
        String tenant = namespace.substring(0, namespace.indexOf('/'));
        expect(admin.namespaces().getNamespaces(tenant).contains(namespace), "not in the list");
        expectRefused(409, () -> admin.namespaces().createNamespace(namespace));
        expectRefused(404, () -> admin.namespaces().createNamespace("none-" + unique + "/n"));
        expectEqual(Set.copyOf(admin.namespaces().getNamespaceReplicationClusters(namespace)), Set.of(CLUSTER));
        admin.topics().createNonPartitionedTopic(topic);
        expectEqual(admin.namespaces().getTopics(namespace), List.of(topic));
        expectRefused(409, () -> admin.namespaces().deleteNamespace(namespace));
        admin.topics().delete(topic);
        admin.namespaces().unload(namespace);
        admin.namespaces().deleteNamespace(namespace);
        expectRefused(404, () -> admin.namespaces().getPolicies(namespace));
    }

    void namespacePolicies() throws Exception {
        admin.namespaces().setRetention(namespace, new RetentionPolicies(10, 100));
        expectEqual(admin.namespaces().getRetention(namespace), new RetentionPolicies(10, 100));
        admin.namespaces().setNamespaceMessageTTL(namespace, 3600);
        expectEqual(admin.namespaces().getNamespaceMessageTTL(namespace), 3600);
        BacklogQuota quota = BacklogQuota.builder()
                .limitSize(1 << 20)
                .retentionPolicy(BacklogQuota.RetentionPolicy.producer_exception)
                .build();
        admin.namespaces().setBacklogQuota(namespace, quota);
        expectEqual(admin.namespaces().getBacklogQuotaMap(namespace).values().iterator().next(), quota);
        admin.namespaces().setPersistence(namespace, new PersistencePolicies(1, 1, 1, 0.5));
        expectEqual(admin.namespaces().getPersistence(namespace), new PersistencePolicies(1, 1, 1, 0.5));
        DispatchRate rate = DispatchRate.builder()
                .dispatchThrottlingRateInMsg(1000)
                .dispatchThrottlingRateInByte(2_000_000)
                .ratePeriodInSecond(1)
                .build();
        admin.namespaces().setDispatchRate(namespace, rate);
        expectEqual(admin.namespaces().getDispatchRate(namespace), rate);
        admin.namespaces().setPublishRate(namespace, new PublishRate(10, 20));
        expectEqual(admin.namespaces().getPublishRate(namespace), new PublishRate(10, 20));
        admin.namespaces().setMaxProducersPerTopic(namespace, 7);
        expectEqual(admin.namespaces().getMaxProducersPerTopic(namespace), 7);
        admin.namespaces().setDeduplicationStatus(namespace, true);
        expectEqual(admin.namespaces().getDeduplicationStatus(namespace), true);
        AutoTopicCreationOverride creation = AutoTopicCreationOverride.builder()
                .allowAutoTopicCreation(true)
                .topicType(TopicType.PARTITIONED.toString())
                .defaultNumPartitions(3)
                .build();
        admin.namespaces().setAutoTopicCreation(namespace, creation);
        expectEqual(admin.namespaces().getAutoTopicCreation(namespace), creation);
        admin.namespaces().setSchemaCompatibilityStrategy(namespace, SchemaCompatibilityStrategy.FULL);
        expectEqual(
                admin.namespaces().getSchemaCompatibilityStrategy(namespace), SchemaCompatibilityStrategy.FULL);
        admin.namespaces().removeNamespaceMessageTTL(namespace);
        expectEqual(admin.namespaces().getNamespaceMessageTTL(namespace), null);
        expectRefused(412, () -> admin.namespaces().setNamespaceMessageTTL(namespace, -1));
    }

    void namespaceProperties() throws Exception {
        admin.namespaces().setProperties(namespace, Map.of("a", "1", "b", "2"));
        admin.namespaces().setProperty(namespace, "c", "3");
        expectEqual(admin.namespaces().getProperty(namespace, "c"), "3");
        expectEqual(admin.namespaces().removeProperty(namespace, "c"), "3");
        expectEqual(admin.namespaces().getProperties(namespace), Map.of("a", "1", "b", "2"));
        admin.namespaces().clearProperties(namespace);
        expectEqual(admin.namespaces().getProperties(namespace), Map.of());
    }

    void bundles() throws Exception {
        String own = namespace + "-four";
        admin.namespaces().createNamespace(own, 4);
        expectEqual(admin.namespaces().getBundles(own).getNumBundles(), 4);
        // A bundle is split only while a broker owns it, so each bundle gets topics first.
        for (int number = 0; number < 16; number++) {
            admin.topics().createNonPartitionedTopic("persistent://" + own + "/t" + number);
        }
        admin.namespaces().splitNamespaceBundle(own, "0x00000000_0x40000000", false, null);
        expectSoon("five bundles", () -> admin.namespaces().getBundles(own).getNumBundles() == 5);
    }

    void topics() throws Exception {
        String volatileTopic = topic.replace("persistent", "non-persistent");
        admin.topics().createNonPartitionedTopic(topic, Map.of("k", "v"));
        admin.topics().createNonPartitionedTopic(volatileTopic);
        expectEqual(sorted(admin.topics().getList(namespace)), Set.of(topic, volatileTopic));
        expectRefused(409, () -> admin.topics().createNonPartitionedTopic(topic));
        expectEqual(admin.topics().getProperties(topic), Map.of("k", "v"));
        admin.topics().updateProperties(topic, Map.of("l", "w"));
        admin.topics().removeProperties(topic, "k");
        expectEqual(admin.topics().getProperties(topic), Map.of("l", "w"));
        admin.topics().unload(topic);
        expectEqual(admin.topics().getInternalStats(topic).entriesAddedCounter, 0L);
        expect(admin.lookups().lookupTopic(topic).startsWith("pulsar://"), "no address");
        expect(admin.lookups().getBundleRange(topic).startsWith("0x"), "no bundle");
        admin.topics().delete(topic);
        expectRefused(404, () -> admin.topics().getStats(topic));
        expectRefused(404, () -> admin.topics().delete(topic));
    }

    void topicPolicies() throws Exception {
        admin.topics().createNonPartitionedTopic(topic);
        // A retention below the backlog quota of 10 GiB is refused.
        admin.topicPolicies().setRetention(topic, new RetentionPolicies(20, 20_000));
        expectSoon(
                "a retention",
                () -> new RetentionPolicies(20, 20_000).equals(admin.topicPolicies().getRetention(topic)));
        admin.topicPolicies().setMessageTTL(topic, 60);
        expectSoon("a time to live", () -> Objects.equals(admin.topicPolicies().getMessageTTL(topic), 60));
        admin.topicPolicies().setMaxProducers(topic, 1);
        expectSoon("a maximum", () -> Objects.equals(admin.topicPolicies().getMaxProducers(topic), 1));
        try (Producer<byte[]> first = client.newProducer().topic(topic).create()) {
            expectEqual(first.getTopic(), topic);
            try {
                client.newProducer().topic(topic).create();
                throw new AssertionError("a second producer was accepted");
            } catch (org.apache.pulsar.client.api.PulsarClientException refused) {
                expect(refused.getMessage().contains("max"), refused);
            }
        }
        admin.topicPolicies().removeMessageTTL(topic);
        expectSoon("no time to live", () -> admin.topicPolicies().getMessageTTL(topic) == null);
        admin.namespaces().setNamespaceMessageTTL(namespace, 120);
        expectSoon(
                "the namespace's time",
                () -> Objects.equals(admin.topicPolicies().getMessageTTL(topic, true), 120));
    }

    void partitioned() throws Exception {
        admin.topics().createPartitionedTopic(topic, 3);
        expectEqual(admin.topics().getPartitionedTopicMetadata(topic).partitions, 3);
        expectEqual(admin.topics().getPartitionedTopicList(namespace), List.of(topic));
        expectRefused(409, () -> admin.topics().createPartitionedTopic(topic, 3));
        admin.topics().createSubscription(topic, "s", MessageId.earliest);
        admin.topics().updatePartitionedTopic(topic, 4);
        expectEqual(admin.topics().getList(namespace).size(), 4);
        // The subscription spreads to the new partition.
        expectSoon(
                "a subscription of partition 3",
                () -> admin.topics().getSubscriptions(topic + "-partition-3").contains("s"));
        publish(topic, 8);
        expectEqual(admin.topics().getPartitionedStats(topic, false).getMsgInCounter(), 8L);
        expectEqual(admin.topics().getPartitionedStats(topic, true).getPartitions().size(), 4);
        expectEqual(admin.topics().getPartitionedInternalStats(topic).partitions.size(), 4);
        admin.topics().skipAllMessages(topic, "s");
        expectSoon(
                "no backlog",
                () -> admin.topics()
                                .getPartitionedStats(topic, false)
                                .getSubscriptions()
                                .get("s")
                                .getMsgBacklog()
                        == 0);
        admin.topics().deletePartitionedTopic(topic);
        expectRefused(404, () -> admin.topics().getPartitionedTopicMetadata(topic));
    }

    void terminateAndTruncate() throws Exception {
        admin.topics().createSubscription(topic, "s", MessageId.earliest);
        MessageId[] ids = publish(topic, 3);
        admin.topics().truncate(topic);
        expectSoon("an empty topic", () -> backlog("s") == 0);
        MessageId last = publish(topic, 1)[0];
        MessageIdAdv end = (MessageIdAdv) admin.topics().terminateTopic(topic);
        expectEqual(end.getLedgerId(), ((MessageIdAdv) last).getLedgerId());
        expectEqual(end.getEntryId(), ((MessageIdAdv) last).getEntryId());
        expect(end.compareTo(ids[2]) > 0, end);
        try {
            publish(topic, 1);
            throw new AssertionError("a terminated topic accepts messages");
        } catch (org.apache.pulsar.client.api.PulsarClientException.TopicTerminatedException expected) {
            expectEqual(admin.topics().getStats(topic).getPublishers().size(), 0);
        }
    }

    void subscriptions() throws Exception {
        admin.topics().createNonPartitionedTopic(topic);
        admin.topics().createSubscription(topic, "s", MessageId.earliest, false, Map.of("k", "v"));
        expectEqual(admin.topics().getSubscriptions(topic), List.of("s"));
        expectRefused(409, () -> admin.topics().createSubscription(topic, "s", MessageId.latest));
        expectEqual(admin.topics().getSubscriptionProperties(topic, "s"), Map.of("k", "v"));
        admin.topics().updateSubscriptionProperties(topic, "s", Map.of("l", "w"));
        expectEqual(admin.topics().getSubscriptionProperties(topic, "s"), Map.of("l", "w"));
        Consumer<byte[]> consumer =
                client.newConsumer().topic(topic).subscriptionName("s").subscribe();
        expectRefused(412, () -> admin.topics().deleteSubscription(topic, "s"));
        consumer.close();
        admin.topics().deleteSubscription(topic, "s");
        expectEqual(admin.topics().getSubscriptions(topic), List.of());
        expectRefused(404, () -> admin.topics().deleteSubscription(topic, "s"));
    }

    void skip() throws Exception {
        admin.topics().createSubscription(topic, "s", MessageId.earliest);
        publish(topic, 10);
        admin.topics().skipMessages(topic, "s", 4);
        expectSoon("six messages", () -> backlog("s") == 6);
        expectText(admin.topics().peekMessages(topic, "s", 1).get(0), "message 4");
        admin.topics().skipAllMessages(topic, "s");
        expectSoon("no message", () -> backlog("s") == 0);
        expectRefused(404, () -> admin.topics().skipMessages(topic, "none", 1));
    }

    void expire() throws Exception {
        admin.topics().createSubscription(topic, "s", MessageId.earliest);
        admin.topics().createSubscription(topic, "other", MessageId.earliest);
        MessageId[] ids = publish(topic, 10);
        admin.topics().expireMessages(topic, "s", ids[3], false);
        expectSoon("six messages", () -> backlog("s") == 6);
        expectEqual(backlog("other"), 10L);
        // A message expires when it is at least one second old.
        expectSoon("no message of s", () -> {
            retried(() -> admin.topics().expireMessages(topic, "s", 1));
            return backlog("s") == 0;
        });
        expectSoon("no message of other", () -> {
            retried(() -> admin.topics().expireMessagesForAllSubscriptions(topic, 1));
            return backlog("other") == 0;
        });
        expectRefused(404, () -> admin.topics().expireMessages(topic, "none", 1));
    }

    void resetCursor() throws Exception {
        admin.topics().createSubscription(topic, "s", MessageId.earliest);
        MessageId[] ids = publish(topic, 10);
        // Without a second subscription the messages would be removed once they are skipped.
        admin.topics().createSubscription(topic, "keeps", MessageId.earliest);
        admin.topics().skipAllMessages(topic, "s");
        expectSoon("no message", () -> backlog("s") == 0);
        admin.topics().resetCursor(topic, "s", ids[5]);
        expectSoon("five messages", () -> backlog("s") == 5);
        admin.topics().resetCursor(topic, "s", ids[5], true);
        expectSoon("four messages", () -> backlog("s") == 4);
        admin.topics().resetCursor(topic, "s", System.currentTimeMillis() - TimeUnit.HOURS.toMillis(1));
        expectSoon("ten messages", () -> backlog("s") == 10);
        admin.topics().resetCursor(topic, "s", MessageId.latest);
        expectSoon("no message", () -> backlog("s") == 0);
        expectRefused(404, () -> admin.topics().resetCursor(topic, "none", ids[0]));
    }

    void messages() throws Exception {
        admin.topics().createSubscription(topic, "s", MessageId.earliest);
        MessageId[] single = publish(topic, 2);
        try (Producer<byte[]> producer = client.newProducer()
                .topic(topic)
                .batchingMaxPublishDelay(WAIT_S, TimeUnit.SECONDS)
                .create()) {
            producer.newMessage().key("k").property("p", "v").value("a".getBytes(StandardCharsets.UTF_8)).sendAsync();
            producer.newMessage().value("b".getBytes(StandardCharsets.UTF_8)).sendAsync();
            producer.flush();
        }
        List<Message<byte[]>> found = admin.topics().peekMessages(topic, "s", 4);
        expectEqual(found.size(), 4);
        expectText(found.get(0), "message 0");
        expectText(found.get(2), "a");
        expectEqual(found.get(2).getKey(), "k");
        expectEqual(found.get(2).getProperty("p"), "v");
        expectText(found.get(3), "b");
        expectText(admin.topics().examineMessage(topic, "earliest", 2), "message 1");
        Map<String, String> beyondAscii = Map.of("\u00e9", "\u65e5\u672c \ud83d\ude00");
        try (Producer<byte[]> producer = client.newProducer().topic(topic + "-p").enableBatching(false).create()) {
            producer.newMessage().properties(beyondAscii).value(new byte[1]).send();
        }
        expectEqual(admin.topics().examineMessage(topic + "-p", "earliest", 1).getProperties(), beyondAscii);
        MessageIdAdv second = (MessageIdAdv) single[1];
        List<Message<byte[]>> byId =
                admin.topics().getMessagesById(topic, second.getLedgerId(), second.getEntryId());
        expectText(byId.get(0), "message 1");
        MessageIdAdv last = (MessageIdAdv) admin.topics().getLastMessageId(topic);
        expectEqual(last.getEntryId(), second.getEntryId() + 1);
        MessageIdAdv first = (MessageIdAdv) admin.topics().getMessageIdByTimestamp(topic, 1);
        expectEqual(first.getEntryId(), 0L);
        // Peeking acknowledges nothing. The backlog counts a batch as one.
        expectEqual(backlog("s"), 3L);
    }

    void schemas() throws Exception {
        admin.topics().createNonPartitionedTopic(topic);
        SchemaInfo first = Schema.AVRO(First.class).getSchemaInfo();
        SchemaInfo second = Schema.AVRO(Second.class).getSchemaInfo();
        expectRefused(404, () -> admin.schemas().getSchemaInfo(topic));
        admin.schemas().createSchema(topic, first);
        expectEqual(admin.schemas().getSchemaInfo(topic).getSchemaDefinition(), first.getSchemaDefinition());
        expect(admin.schemas().testCompatibility(topic, second).isCompatibility(), "the second fits");
        SchemaInfo demanding = Schema.AVRO(Demanding.class).getSchemaInfo();
        admin.schemas().createSchema(topic, second);
        expectEqual(admin.schemas().getSchemaInfoWithVersion(topic).getVersion(), 1L);
        expectEqual(admin.schemas().getVersionBySchema(topic, first), 0L);
        expectEqual(admin.schemas().getSchemaInfo(topic, 0).getSchemaDefinition(), first.getSchemaDefinition());
        expectEqual(admin.schemas().getAllSchemas(topic).size(), 2);
        expectRefused(409, () -> admin.schemas().createSchema(topic, demanding));
        try (Producer<Second> producer =
                client.newProducer(Schema.AVRO(Second.class)).topic(topic).create()) {
            producer.send(new Second());
        }
        admin.schemas().deleteSchema(topic);
        expectRefused(404, () -> admin.schemas().getSchemaInfo(topic));
    }

    void permissions() throws Exception {
        admin.namespaces().grantPermissionOnNamespace(namespace, "r", Set.of(AuthAction.produce, AuthAction.consume));
        expectEqual(
                admin.namespaces().getPermissions(namespace).get("r"), Set.of(AuthAction.produce, AuthAction.consume));
        admin.namespaces().revokePermissionsOnNamespace(namespace, "r");
        expectEqual(admin.namespaces().getPermissions(namespace), Map.of());
        admin.topics().createNonPartitionedTopic(topic);
        admin.topics().grantPermission(topic, "q", Set.of(AuthAction.consume));
        expectEqual(admin.topics().getPermissions(topic).get("q"), Set.of(AuthAction.consume));
        admin.topics().revokePermissions(topic, "q");
        expectEqual(admin.topics().getPermissions(topic), Map.of());
        admin.namespaces().grantPermissionOnSubscription(namespace, "s", Set.of("r"));
        expectEqual(admin.namespaces().getPermissionOnSubscription(namespace), Map.of("s", Set.of("r")));
        admin.namespaces().revokePermissionOnSubscription(namespace, "s", "r");
    }

    void stats() throws Exception {
        Consumer<byte[]> consumer = client.newConsumer()
                .topic(topic)
                .subscriptionName("s")
                .consumerName("reads")
                .subscriptionType(SubscriptionType.Shared)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .subscribe();
        publish(topic, 5);
        for (int number = 0; number < 3; number++) {
            consumer.acknowledge(consumer.receive(WAIT_S, TimeUnit.SECONDS));
        }
        expectSoon("two messages", () -> backlog("s") == 2);
        TopicStats found = admin.topics().getStats(topic);
        expectEqual(found.getMsgInCounter(), 5L);
        SubscriptionStats one = found.getSubscriptions().get("s");
        expectEqual(one.getType(), "Shared");
        expectEqual(one.getConsumers().get(0).getConsumerName(), "reads");
        try (Producer<byte[]> producer =
                client.newProducer().topic(topic).producerName("writes").create()) {
            expectEqual(admin.topics().getStats(topic).getPublishers().get(0).getProducerName(), producer.getProducerName());
        }
        PersistentTopicInternalStats inner = admin.topics().getInternalStats(topic);
        expectEqual(inner.numberOfEntries, 5L);
        expectEqual(inner.state, "LedgerOpened");
        expect(inner.cursors.containsKey("s"), inner.cursors.keySet());
        expect(admin.topics().getInternalInfo(topic).contains("ledgers"), "no ledgers");
        consumer.close();
    }

    void compaction() throws Exception {
        try (Producer<byte[]> producer =
                client.newProducer().topic(topic).enableBatching(false).create()) {
            for (int number = 0; number < 4; number++) {
                producer.newMessage().key("k").value(new byte[] {(byte) number}).send();
            }
        }
        expectEqual(admin.topics().compactionStatus(topic).status, LongRunningProcessStatus.Status.NOT_RUN);
        admin.topics().triggerCompaction(topic);
        expectSoon(
                "a compacted topic",
                () -> admin.topics().compactionStatus(topic).status == LongRunningProcessStatus.Status.SUCCESS);
        expect(admin.topics().getInternalStats(topic).compactedLedger.ledgerId >= 0, "no compacted ledger");
    }
}
