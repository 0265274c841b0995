import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import java.util.function.IntFunction;
import java.util.regex.Pattern;
import org.apache.pulsar.client.api.BatcherBuilder;
import org.apache.pulsar.client.api.ClientBuilder;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerBuilder;
import org.apache.pulsar.client.api.ConsumerEventListener;
import org.apache.pulsar.client.api.DeadLetterPolicy;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.MessageIdAdv;
import org.apache.pulsar.client.api.MessageListener;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerAccessMode;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Range;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.RedeliveryBackoff;
import org.apache.pulsar.client.api.RegexSubscriptionMode;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.TableView;
import org.apache.pulsar.client.api.TypedMessageBuilder;
import org.apache.pulsar.client.api.transaction.Transaction;
import org.apache.pulsar.client.impl.MultiplierRedeliveryBackoff;

/**
 * The official Java client against a broker: `java Interop.java PULSAR_URL ADMIN_URL [CHECK...]` runs the checks, each on a
 * topic of its own, and prints a line for each: `ok NAME` or `failed NAME: REASON`. It exits 0 when all were run.
 */
public final class Interop {
    interface Check {
        void run(Interop bench) throws Exception;
    }

    static final int ARRIVES_S = 60;
    static final int SILENCE_MS = 300;

    /** Requests about a topic are sent on to its owner. */
    static final HttpClient HTTP = HttpClient.newBuilder().followRedirects(HttpClient.Redirect.ALWAYS).build();
    static final Map<String, Check> CHECKS = new LinkedHashMap<>();

    static {
        CHECKS.put("thousand_unbatched", Interop::thousandUnbatched);
        CHECKS.put("thousand_batched_and_compressed", Interop::thousandBatched);
        CHECKS.put("ack_receipts", Interop::ackReceipts);
        CHECKS.put("cumulative_ack", Interop::cumulativeAck);
        CHECKS.put("batch_index_ack", Interop::batchIndexAck);
        CHECKS.put("nack_and_redelivery_count", Interop::nack);
        CHECKS.put("ack_timeout", Interop::ackTimeout);
        CHECKS.put("dead_letter", Interop::deadLetter);
        CHECKS.put("reader", Interop::reader);
        CHECKS.put("reader_of_key_hashes", Interop::readerOfKeyHashes);
        CHECKS.put("reader_from_a_time", Interop::readerFromTime);
        CHECKS.put("subscription_properties", Interop::subscriptionProperties);
        CHECKS.put("seek", Interop::seek);
        CHECKS.put("seek_into_a_batch", Interop::seekIntoBatch);
        CHECKS.put("last_message_ids", Interop::lastMessageIds);
        CHECKS.put("key_shared", Interop::keyShared);
        CHECKS.put("failover", Interop::failover);
        CHECKS.put("pattern", Interop::pattern);
        CHECKS.put("partitions", Interop::partitions);
        CHECKS.put("chunks", Interop::chunks);
        CHECKS.put("indexes", Interop::indexes);
        CHECKS.put("properties", Interop::properties);
        CHECKS.put("access_modes", Interop::accessModes);
        CHECKS.put("unsubscribe", Interop::unsubscribe);
        CHECKS.put("http_lookup", Interop::httpLookup);
        CHECKS.put("delayed", Interop::delayed);
        CHECKS.put("retry_topic", Interop::retryTopic);
        CHECKS.put("nack_backoff", Interop::nackBackoff);
        CHECKS.put("non_persistent", Interop::nonPersistent);
        CHECKS.put("zero_queue", Interop::zeroQueue);
        CHECKS.put("table_view", Interop::tableView);
        CHECKS.put("compaction", Interop::compaction);
        CHECKS.put("end_of_topic", Interop::endOfTopic);
        CHECKS.put("end_of_topic_is_called_back", Interop::endIsCalledBack);
        CHECKS.put("pause_and_resume", Interop::pauseAndResume);
        CHECKS.put("transaction_commit", Interop::transactionCommit);
        CHECKS.put("transaction_abort", Interop::transactionAbort);
        CHECKS.put("transaction_acks", Interop::transactionAcks);
        CHECKS.put("transaction_acks_in_batches", Interop::transactionAcksInBatches);
        CHECKS.put("transaction_cumulative_ack", Interop::transactionCumulativeAck);
        CHECKS.put("transaction_conflict", Interop::transactionConflict);
        CHECKS.put("transaction_time_out", Interop::transactionTimeOut);
        CHECKS.put("transaction_from_topic_to_topic", Interop::transactionFromTopicToTopic);
    }

    final String pulsarUrl;
    final String adminUrl;
    final PulsarClient client;
    String topic;

    Interop(String pulsarUrl, String adminUrl, PulsarClient client, String topic) {
        this.pulsarUrl = pulsarUrl;
        this.adminUrl = adminUrl;
        this.client = client;
        this.topic = topic;
    }

    public static void main(String[] arguments) throws Exception {
        long run = System.nanoTime();
        List<String> wanted = List.of(arguments).subList(2, arguments.length);
        for (Map.Entry<String, Check> check : CHECKS.entrySet()) {
            if (!wanted.isEmpty() && !wanted.contains(check.getKey())) {
                continue;
            }
            String topic = "java-" + Long.toHexString(run) + "-" + check.getKey();
            PulsarClient client = connect(arguments[0]);
            try {
                check.getValue().run(new Interop(arguments[0], arguments[1], client, topic));
                System.out.println("ok " + check.getKey());
            } catch (Exception | AssertionError failure) {
                String reason = String.valueOf(failure).replace('\n', ' ');
                System.out.println("failed " + check.getKey() + ": " + reason);
            }
            client.closeAsync(); // Its threads take two seconds to end; nobody waits for them.
        }
        Runtime.getRuntime().halt(0);
    }

    static PulsarClient connect(String url) throws PulsarClientException {
        ClientBuilder builder =
                PulsarClient.builder().serviceUrl(url).operationTimeout(ARRIVES_S, TimeUnit.SECONDS);
        String trusted = System.getenv("TRUST_CERTS"); // For pulsar+ssl alone.
        return trusted == null
                ? builder.build()
                : builder.tlsTrustCertsFilePath(trusted).enableTlsHostnameVerification(true).build();
    }

    // Short forms of the client.

    ProducerBuilder<byte[]> producer() {
        return client.newProducer().topic(topic).blockIfQueueFull(true);
    }

    Producer<byte[]> unbatched() throws PulsarClientException {
        return producer().enableBatching(false).create();
    }

    ConsumerBuilder<byte[]> consumer() {
        return client.newConsumer()
                .topic(topic)
                .subscriptionName("s")
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest);
    }

    static byte[] body(int number) {
        return ("message " + number).getBytes();
    }

    static List<MessageId> publish(Producer<byte[]> producer, int first, int count) throws Exception {
        return publish(producer, first, count, null);
    }

    static List<MessageId> publish(Producer<byte[]> producer, int first, int count, IntFunction<String> key)
            throws Exception {
        List<CompletableFuture<MessageId>> pending = new ArrayList<>();
        for (int number = first; number < first + count; number++) {
            TypedMessageBuilder<byte[]> message = producer.newMessage().value(body(number));
            pending.add((key == null ? message : message.key(key.apply(number))).sendAsync());
        }
        producer.flush();
        List<MessageId> ids = new ArrayList<>();
        for (CompletableFuture<MessageId> one : pending) {
            ids.add(one.get(ARRIVES_S, TimeUnit.SECONDS));
        }
        return ids;
    }

    static Message<byte[]> next(Consumer<byte[]> consumer) throws PulsarClientException {
        Message<byte[]> message = consumer.receive(ARRIVES_S, TimeUnit.SECONDS);
        expect(message != null, "no message came");
        return message;
    }

    static void receive(Consumer<byte[]> consumer, int first, int count) throws PulsarClientException {
        for (int number = first; number < first + count; number++) {
            Message<byte[]> message = next(consumer);
            expect(Arrays.equals(message.getData(), body(number)), text(message) + " came instead of " + number);
            consumer.acknowledge(message);
        }
    }

    static void nothingComes(Consumer<byte[]> consumer) throws PulsarClientException {
        Message<byte[]> message = consumer.receive(SILENCE_MS, TimeUnit.MILLISECONDS);
        expect(message == null, "unexpected message");
    }

    static String text(Message<byte[]> message) {
        return new String(message.getData());
    }

    static void expect(boolean good, String reason) {
        if (!good) {
            throw new AssertionError(reason);
        }
    }

    static void waitUntil(BooleanSupplier condition, String what) throws InterruptedException {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(2 * ARRIVES_S);
        while (!condition.getAsBoolean()) {
            expect(System.nanoTime() < deadline, "did not come true: " + what);
            TimeUnit.MILLISECONDS.sleep(5);
        }
    }

    int ask(String method, String path, String body) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(adminUrl + "/admin/v2/" + path))
                .header("Content-Type", "application/json")
                .method(method, HttpRequest.BodyPublishers.ofString(body))
                .build();
        return HTTP.send(request, HttpResponse.BodyHandlers.ofString()).statusCode();
    }

    String answer(String path) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(adminUrl + "/admin/v2/" + path)).build();
        return HTTP.send(request, HttpResponse.BodyHandlers.ofString()).body();
    }

    void partitioned(int count) throws Exception {
        int status = ask("PUT", "persistent/public/default/" + topic + "/partitions", String.valueOf(count));
        expect(status == 204, "status " + status);
    }

    // Checks.

    void thousandUnbatched() throws Exception {
        Consumer<byte[]> consumer = consumer().subscribe();
        publish(unbatched(), 0, 1000);
        receive(consumer, 0, 1000);
        nothingComes(consumer);
    }

    void thousandBatched() throws Exception {
        Consumer<byte[]> consumer = consumer().subscribe();
        int first = 0;
        for (CompressionType kind : CompressionType.values()) {
            publish(producer().compressionType(kind).batchingMaxMessages(100).create(), first, 1000);
            receive(consumer, first, 1000);
            first += 1000;
        }
        nothingComes(consumer);
    }

    void ackReceipts() throws Exception {
        ConsumerBuilder<byte[]> options = consumer().subscriptionType(SubscriptionType.Shared)
                .isAckReceiptEnabled(true).acknowledgmentGroupTime(0, TimeUnit.SECONDS);
        Consumer<byte[]> consumer = options.subscribe();
        publish(unbatched(), 0, 100);
        receive(consumer, 0, 40);
        List<CompletableFuture<Void>> receipts = new ArrayList<>();
        for (int number = 40; number < 60; number++) {
            receipts.add(consumer.acknowledgeAsync(next(consumer)));
        }
        for (CompletableFuture<Void> receipt : receipts) {
            receipt.get(ARRIVES_S, TimeUnit.SECONDS);
        }
        consumer.close();
        receive(options.subscribe(), 60, 40);
    }

    void cumulativeAck() throws Exception {
        ConsumerBuilder<byte[]> options = consumer().isAckReceiptEnabled(true).acknowledgmentGroupTime(0, TimeUnit.SECONDS);
        Consumer<byte[]> consumer = options.subscribe();
        publish(unbatched(), 0, 20);
        Message<byte[]> last = null;
        for (int number = 0; number < 12; number++) {
            last = next(consumer);
        }
        consumer.acknowledgeCumulative(last);
        consumer.close();
        receive(options.subscribe(), 12, 8);
    }

    Producer<byte[]> batcher(int count) throws PulsarClientException {
        return producer().batchingMaxMessages(count).batchingMaxPublishDelay(1, TimeUnit.MINUTES).create();
    }

    void batchIndexAck() throws Exception {
        ConsumerBuilder<byte[]> options = consumer().subscriptionType(SubscriptionType.Shared)
                .enableBatchIndexAcknowledgment(true).isAckReceiptEnabled(true).acknowledgmentGroupTime(0, TimeUnit.SECONDS);
        Consumer<byte[]> consumer = options.subscribe();
        publish(batcher(10), 0, 10);
        for (int number = 0; number < 10; number++) {
            Message<byte[]> message = next(consumer);
            if (number % 2 == 0) {
                consumer.acknowledge(message);
            }
        }
        consumer.close();
        Consumer<byte[]> again = options.subscribe();
        for (int number = 1; number < 10; number += 2) {
            receive(again, number, 1);
        }
        nothingComes(again);
    }

    void nack() throws Exception {
        Consumer<byte[]> consumer = consumer().subscriptionType(SubscriptionType.Shared)
                .negativeAckRedeliveryDelay(100, TimeUnit.MILLISECONDS).subscribe();
        publish(unbatched(), 0, 3);
        receive(consumer, 0, 1);
        consumer.negativeAcknowledge(next(consumer));
        receive(consumer, 2, 1);
        for (int count = 1; count <= 3; count++) {
            Message<byte[]> message = next(consumer);
            expect(Arrays.equals(message.getData(), body(1)), text(message) + " came");
            expect(message.getRedeliveryCount() == count, "redelivery count " + message.getRedeliveryCount());
            consumer.negativeAcknowledge(message);
        }
        receive(consumer, 1, 1);
    }

    void ackTimeout() throws Exception {
        Consumer<byte[]> consumer = consumer().subscriptionType(SubscriptionType.Shared)
                .ackTimeout(1, TimeUnit.SECONDS).ackTimeoutTickTime(100, TimeUnit.MILLISECONDS).subscribe();
        publish(unbatched(), 0, 3);
        receive(consumer, 0, 1);
        next(consumer);
        receive(consumer, 2, 1);
        receive(consumer, 1, 1);
    }

    void deadLetter() throws Exception {
        Consumer<byte[]> consumer = consumer().subscriptionType(SubscriptionType.Shared)
                .negativeAckRedeliveryDelay(100, TimeUnit.MILLISECONDS)
                .deadLetterPolicy(DeadLetterPolicy.builder().maxRedeliverCount(2).deadLetterTopic(topic + "-dead")
                        .initialSubscriptionName("kept").build())
                .subscribe();
        publish(unbatched(), 0, 1);
        for (int count = 0; count < 3; count++) {
            consumer.negativeAcknowledge(next(consumer));
        }
        // The consumer only notices at the next delivery, which nobody sees: its topic is created then.
        nothingComes(consumer);
        Consumer<byte[]> dead = client.newConsumer().topic(topic + "-dead").subscriptionName("kept").subscribe();
        receive(dead, 0, 1);
    }

    /** Takes `message N`, not before its time: the broker of this test is strict. */
    static void arrivesAt(Consumer<byte[]> consumer, int number, long dueMs) throws PulsarClientException {
        receive(consumer, number, 1);
        expect(System.currentTimeMillis() >= dueMs, "message " + number + " is early");
    }

    void delayed() throws Exception {
        for (SubscriptionType kind : List.of(SubscriptionType.Shared, SubscriptionType.Key_Shared)) {
            String name = topic + kind;
            Consumer<byte[]> consumer = client.newConsumer().topic(name).subscriptionName("s")
                    .subscriptionType(kind).subscribe();
            Consumer<byte[]> exclusive = client.newConsumer().topic(name).subscriptionName("x").subscribe();
            Producer<byte[]> producer = client.newProducer().topic(name).create();
            long now = System.currentTimeMillis();
            producer.newMessage().value(body(1)).deliverAt(now + 1500).send();
            producer.newMessage().value(body(0)).deliverAt(now + 700).send();
            producer.newMessage().value(body(2)).deliverAfter(1, TimeUnit.HOURS).send();
            receive(exclusive, 1, 1);
            receive(exclusive, 0, 1);
            receive(exclusive, 2, 1);
            arrivesAt(consumer, 0, now + 700);
            arrivesAt(consumer, 1, now + 1500);
            nothingComes(consumer);
        }
    }

    /** The client sends a message that is given back to the retry topic with a delay, and at last to the dead letters. */
    void retryTopic() throws Exception {
        DeadLetterPolicy policy = DeadLetterPolicy.builder().maxRedeliverCount(2).retryLetterTopic(topic + "-RETRY")
                .deadLetterTopic(topic + "-dead").initialSubscriptionName("kept").build();
        Consumer<byte[]> consumer = consumer().subscriptionType(SubscriptionType.Shared).enableRetry(true)
                .deadLetterPolicy(policy).subscribe();
        publish(unbatched(), 0, 1);
        long due = 0;
        for (int count = 0; count < 3; count++) {
            Message<byte[]> message = next(consumer);
            expect(System.currentTimeMillis() >= due, "retry " + count + " is early");
            String times = message.getProperties().get("RECONSUMETIMES");
            expect(count == 0 || times.equals("" + count), "count " + times + " instead of " + count);
            due = System.currentTimeMillis() + 500;
            consumer.reconsumeLater(message, 500, TimeUnit.MILLISECONDS);
        }
        receive(client.newConsumer().topic(topic + "-dead").subscriptionName("kept").subscribe(), 0, 1);
    }

    void nackBackoff() throws Exception {
        RedeliveryBackoff backoff = MultiplierRedeliveryBackoff.builder().minDelayMs(200).maxDelayMs(800)
                .multiplier(2).build();
        Consumer<byte[]> consumer = consumer().subscriptionType(SubscriptionType.Shared)
                .negativeAckRedeliveryBackoff(backoff).subscribe();
        long due = System.currentTimeMillis() + 500;
        unbatched().newMessage().value(body(0)).deliverAt(due).send();
        for (int count = 0; count <= 3; count++) {
            Message<byte[]> message = next(consumer);
            expect(count > 0 || System.currentTimeMillis() >= due, "the message is early");
            expect(message.getRedeliveryCount() == count, "redelivery count " + message.getRedeliveryCount());
            consumer.negativeAcknowledge(message);
        }
        receive(consumer, 0, 1);
    }

    void reader() throws Exception {
        List<MessageId> ids = publish(producer().batchingMaxMessages(4).create(), 0, 20);
        Map<Integer, MessageId> starts = Map.of(0, MessageId.earliest, 6, ids.get(5), 20, MessageId.latest);
        for (Map.Entry<Integer, MessageId> start : starts.entrySet()) {
            try (Reader<byte[]> reader = client.newReader().topic(topic).startMessageId(start.getValue()).create()) {
                for (int number = start.getKey(); number < 20; number++) {
                    expect(reader.hasMessageAvailable(), "nothing behind " + number);
                    Message<byte[]> message = reader.readNext(ARRIVES_S, TimeUnit.SECONDS);
                    expect(Arrays.equals(message.getData(), body(number)), text(message) + " instead of " + number);
                }
                expect(!reader.hasMessageAvailable(), "more than there is, from " + start.getKey());
            }
        }
    }

    /** Two readers share the keys: each gets those of its hashes, in order, and together they get everything. */
    void readerOfKeyHashes() throws Exception {
        List<Range> halves = List.of(Range.of(0, 32_767), Range.of(32_768, 65_535));
        List<Reader<byte[]>> readers = new ArrayList<>();
        for (Range half : halves) {
            readers.add(client.newReader().topic(topic).startMessageId(MessageId.earliest).keyHashRange(half).create());
        }
        publish(unbatched(), 0, 200, number -> "key-" + number % 20);
        Map<String, Integer> owners = new HashMap<>();
        Map<String, Integer> last = new HashMap<>();
        int seen = 0;
        for (int reader = 0; reader < readers.size(); reader++) {
            Message<byte[]> message;
            while (seen < 200 && (message = readers.get(reader).readNext(2, TimeUnit.SECONDS)) != null) {
                String key = message.getKey();
                Integer owner = owners.putIfAbsent(key, reader);
                expect(owner == null || owner == reader, key + " went to two readers");
                int number = Integer.parseInt(text(message).split(" ")[1]);
                expect(number > last.getOrDefault(key, -1), key + " out of order");
                last.put(key, number);
                seen++;
            }
        }
        expect(seen == 200, seen + " messages");
        expect(owners.containsValue(0) && owners.containsValue(1), "one reader got every key: " + owners);
        for (Reader<byte[]> reader : readers) {
            reader.close();
        }
    }

    /** `startMessageFromRollbackDuration`: a reader begins that long ago, not at the beginning and not at the end. */
    void readerFromTime() throws Exception {
        Producer<byte[]> producer = unbatched();
        publish(producer, 0, 10);
        Thread.sleep(4_500);
        publish(producer, 10, 10);
        Map<Long, Integer> firsts = Map.of(3L, 10, 3_600L, 0);
        for (Map.Entry<Long, Integer> start : firsts.entrySet()) {
            try (Reader<byte[]> reader = client.newReader()
                    .topic(topic)
                    .startMessageFromRollbackDuration(start.getKey(), TimeUnit.SECONDS)
                    .create()) {
                for (int number = start.getValue(); number < 20; number++) {
                    Message<byte[]> message = reader.readNext(ARRIVES_S, TimeUnit.SECONDS);
                    expect(message != null, "nothing came in place of " + number);
                    expect(Arrays.equals(message.getData(), body(number)), text(message) + " instead of " + number);
                }
                expect(!reader.hasMessageAvailable(), "more than there is");
            }
        }
        try (Reader<byte[]> reader = client.newReader()
                .topic(topic)
                .startMessageFromRollbackDuration(0, TimeUnit.SECONDS)
                .startMessageId(MessageId.latest)
                .create()) {
            publish(producer, 20, 1);
            expect(Arrays.equals(reader.readNext(ARRIVES_S, TimeUnit.SECONDS).getData(), body(20)), "another message");
        }
    }

    /** Properties and the replicated flag outlive the consumer, and a second consumer does not replace them. */
    void subscriptionProperties() throws Exception {
        consumer().subscriptionProperties(Map.of("team", "red")).replicateSubscriptionState(true).subscribe().close();
        consumer().subscriptionProperties(Map.of("team", "blue")).subscribe().close();
        consumer().subscriptionName("plain").subscribe().close();
        String stats = answer("persistent/public/default/" + topic + "/stats").replace(" ", "");
        expect(stats.contains("\"subscriptionProperties\":{\"team\":\"red\"}"), stats);
        expect(stats.contains("\"subscriptionProperties\":{}"), stats);
        expect(stats.contains("\"replicated\":true") && stats.contains("\"replicated\":false"), stats);
        String kept = answer("persistent/public/default/" + topic + "/subscription/s/properties").replace(" ", "");
        expect(kept.equals("{\"team\":\"red\"}"), kept);
    }

    void seek() throws Exception {
        Consumer<byte[]> consumer = consumer().startMessageIdInclusive().subscribe();
        Producer<byte[]> producer = unbatched();
        List<MessageId> ids = publish(producer, 0, 50);
        receive(consumer, 0, 50);
        consumer.seek(ids.get(20));
        receive(consumer, 20, 30);
        consumer.seek(MessageId.earliest);
        receive(consumer, 0, 50);
        consumer.seek(System.currentTimeMillis() - 3_600_000);
        receive(consumer, 0, 50);
        consumer.seek(MessageId.latest);
        nothingComes(consumer);
        publish(producer, 50, 1);
        receive(consumer, 50, 1);
    }

    void seekIntoBatch() throws Exception {
        Consumer<byte[]> consumer = consumer().startMessageIdInclusive().subscribe();
        List<MessageId> ids = publish(batcher(10), 0, 10);
        receive(consumer, 0, 10);
        consumer.seek(ids.get(6));
        receive(consumer, 6, 4);
        nothingComes(consumer);
    }

    void lastMessageIds() throws Exception {
        Consumer<byte[]> consumer = consumer().subscribe();
        MessageIdAdv newest = (MessageIdAdv) publish(batcher(5), 0, 10).get(9);
        MessageIdAdv found = (MessageIdAdv) consumer.getLastMessageIds().get(0);
        expect(found.getLedgerId() == newest.getLedgerId() && found.getEntryId() == newest.getEntryId()
                && found.getBatchIndex() == newest.getBatchIndex(), found + " instead of " + newest);
    }

    /** A consumer joins and one leaves; each key's messages come once and in order. */
    void keyShared() throws Exception {
        int keys = 20;
        int total = 2000;
        Map<String, List<String>> got = new ConcurrentHashMap<>();
        AtomicInteger seen = new AtomicInteger();
        List<AtomicBoolean> stops = new ArrayList<>();
        List<Thread> threads = new ArrayList<>();
        Runnable join = () -> {
            AtomicBoolean stop = new AtomicBoolean();
            stops.add(stop);
            Thread thread = new Thread(() -> {
                try (Consumer<byte[]> consumer = consumer().subscriptionType(SubscriptionType.Key_Shared)
                        .receiverQueueSize(20).isAckReceiptEnabled(true).acknowledgmentGroupTime(0, TimeUnit.SECONDS).subscribe()) {
                    while (!stop.get()) {
                        Message<byte[]> message = consumer.receive(50, TimeUnit.MILLISECONDS);
                        if (message != null) {
                            got.computeIfAbsent(message.getKey(), key -> new CopyOnWriteArrayList<>())
                                    .add(text(message));
                            seen.incrementAndGet();
                            consumer.acknowledge(message);
                        }
                    }
                } catch (PulsarClientException error) {
                    throw new IllegalStateException(error);
                }
            });
            threads.add(thread);
            thread.start();
        };
        join.run();
        join.run();
        Producer<byte[]> producer =
                producer().batcherBuilder(BatcherBuilder.KEY_BASED).batchingMaxMessages(1).create();
        publish(producer, 0, total / 2, number -> "key-" + number % keys);
        waitUntil(() -> seen.get() >= total / 4, "a quarter is consumed");
        join.run();
        publish(producer, total / 2, total / 2, number -> "key-" + number % keys);
        stops.get(0).set(true);
        waitUntil(() -> seen.get() >= total, "everything is consumed");
        for (int number = 0; number < threads.size(); number++) {
            stops.get(number).set(true);
            threads.get(number).join();
        }
        for (int number = 0; number < total; number++) {
            List<String> list = got.get("key-" + number % keys);
            expect(list.size() == total / keys, list.size() + " messages of a key");
            expect(list.get(number / keys).equals("message " + number), "out of order: " + list.get(number / keys));
        }
    }

    void failover() throws Exception {
        List<String> changes = new CopyOnWriteArrayList<>();
        ConsumerEventListener listener = new ConsumerEventListener() {
            @Override
            public void becameActive(Consumer<?> consumer, int partition) {
                changes.add(consumer.getConsumerName() + " active");
            }

            @Override
            public void becameInactive(Consumer<?> consumer, int partition) {
                changes.add(consumer.getConsumerName() + " inactive");
            }
        };
        ConsumerBuilder<byte[]> options = consumer().subscriptionType(SubscriptionType.Failover)
                .isAckReceiptEnabled(true).acknowledgmentGroupTime(0, TimeUnit.SECONDS).consumerEventListener(listener);
        Consumer<byte[]> first = options.clone().consumerName("first").priorityLevel(0).subscribe();
        Consumer<byte[]> second = options.clone().consumerName("second").priorityLevel(1).subscribe();
        waitUntil(() -> changes.containsAll(List.of("first active", "second inactive")), "both are told");
        publish(unbatched(), 0, 20);
        receive(first, 0, 10);
        nothingComes(second);
        first.close();
        receive(second, 10, 10);
        expect(changes.contains("second active"), "the heir was not told: " + changes);
    }

    /** The broker tells a client that wants persistent topics of new ones; it does not look for them in between. */
    void pattern() throws Exception {
        publish(client.newProducer().topic(topic + "-a").create(), 0, 1);
        Consumer<byte[]> consumer = client.newConsumer().subscriptionName("s")
                .topicsPattern(Pattern.compile("public/default/" + topic + "-.*"))
                .subscriptionTopicsMode(RegexSubscriptionMode.PersistentOnly)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .patternAutoDiscoveryPeriod(1, TimeUnit.HOURS)
                .subscribe();
        receive(consumer, 0, 1);
        publish(client.newProducer().topic(topic + "-late").create(), 1, 1);
        receive(consumer, 1, 1);
    }

    void partitions() throws Exception {
        partitioned(4);
        expect(client.getPartitionsForTopic(topic).get().size() == 4, "four partitions expected");
        Consumer<byte[]> consumer = consumer().subscribe();
        publish(producer().create(), 0, 200, number -> String.valueOf(number % 20));
        Map<String, Integer> homes = new HashMap<>();
        for (int number = 0; number < 200; number++) {
            Message<byte[]> message = next(consumer);
            int partition = ((MessageIdAdv) message.getMessageId()).getPartitionIndex();
            Integer home = homes.put(message.getKey(), partition);
            expect(partition >= 0 && (home == null || home == partition), "a key is in two partitions");
            consumer.acknowledge(message);
        }
        expect(homes.size() == 20, homes.size() + " keys");
        nothingComes(consumer);
    }

    void chunks() throws Exception {
        byte[] content = new byte[12 << 20];
        new Random(1).nextBytes(content);
        Consumer<byte[]> consumer = consumer().subscribe();
        producer().enableChunking(true).enableBatching(false).create().send(content);
        Message<byte[]> message = next(consumer);
        expect(Arrays.equals(message.getData(), content), message.size() + " other bytes");
        consumer.acknowledge(message);
    }

    void indexes() throws Exception {
        Consumer<byte[]> consumer = consumer().subscribe();
        publish(unbatched(), 0, 3);
        publish(batcher(4), 3, 8);
        for (int number = 0; number < 11; number++) {
            Message<byte[]> message = next(consumer);
            expect(message.hasIndex() && message.getIndex().get() == number, "index " + message.getIndex());
            expect(message.getBrokerPublishTime().isPresent(), "no broker timestamp");
        }
    }

    void properties() throws Exception {
        Consumer<byte[]> consumer = consumer().subscribe();
        producer().producerName("named").create().newMessage().value(new byte[] {1}).key("key")
                .orderingKey("order".getBytes()).eventTime(123456789).property("a", "\u00fc").send();
        Message<byte[]> message = next(consumer);
        expect(message.getKey().equals("key"), "key");
        expect(Arrays.equals(message.getOrderingKey(), "order".getBytes()), "ordering key");
        expect(message.getEventTime() == 123456789, "event time");
        expect(message.getProperty("a").equals("\u00fc"), "property");
        expect(message.getProducerName().equals("named"), "producer name");
    }

    void accessModes() throws Exception {
        Producer<byte[]> holder = producer().accessMode(ProducerAccessMode.Exclusive).create();
        publish(holder, 0, 10);
        PulsarClient other = connect(pulsarUrl);
        ProducerBuilder<byte[]> options = other.newProducer().topic(topic);
        try {
            options.clone().accessMode(ProducerAccessMode.Exclusive).create();
            throw new AssertionError("a second exclusive producer was let in");
        } catch (PulsarClientException.ProducerFencedException expected) {
            expect(holder.isConnected(), "the first one lost its place");
        }
        CompletableFuture<Producer<byte[]>> waiting =
                options.clone().accessMode(ProducerAccessMode.WaitForExclusive).createAsync();
        publish(holder, 10, 10);
        holder.close();
        publish(waiting.get(ARRIVES_S, TimeUnit.SECONDS), 20, 10);
        options.clone().accessMode(ProducerAccessMode.ExclusiveWithFencing).create();
        other.closeAsync();
        receive(consumer().subscribe(), 0, 30);
    }

    void unsubscribe() throws Exception {
        ConsumerBuilder<byte[]> options = consumer().subscriptionType(SubscriptionType.Shared);
        Consumer<byte[]> first = options.subscribe();
        Consumer<byte[]> second = options.subscribe();
        try {
            first.unsubscribe();
            throw new AssertionError("unsubscribed although another consumer is connected");
        } catch (PulsarClientException expected) {
            first.unsubscribe(true);
        }
        second.close(); // It would subscribe again, maybe before the next line does.
        nothingComes(client.newConsumer().topic(topic).subscriptionName("s").subscribe());
    }

    void httpLookup() throws Exception {
        partitioned(2);
        PulsarClient over = connect(adminUrl);
        Interop bench = new Interop(pulsarUrl, adminUrl, over, topic);
        Consumer<byte[]> consumer = bench.consumer().subscribe();
        publish(bench.unbatched(), 0, 10, number -> "one");
        receive(consumer, 0, 10);
        over.closeAsync();
    }

    void nonPersistent() throws Exception {
        topic = "non-persistent://public/default/" + topic;
        Producer<byte[]> producer = unbatched();
        publish(producer, 0, 10);
        Consumer<byte[]> consumer = consumer().subscribe();
        publish(producer, 10, 100);
        receive(consumer, 10, 100);
    }

    /** This client refuses a time limit with a queue of none. */
    void zeroQueue() throws Exception {
        ConsumerBuilder<byte[]> options =
                consumer().subscriptionType(SubscriptionType.Shared).receiverQueueSize(0);
        Consumer<byte[]> first = options.subscribe();
        Consumer<byte[]> second = options.subscribe();
        publish(unbatched(), 0, 10);
        for (int number = 0; number < 10; number++) {
            Message<byte[]> message = (number % 2 == 0 ? first : second).receiveAsync().get(ARRIVES_S, TimeUnit.SECONDS);
            expect(Arrays.equals(message.getData(), body(number)), text(message) + " instead of " + number);
        }
    }

    /** The client reads what is there only of a topic whose name says that it is persistent. */
    void tableView() throws Exception {
        topic = "persistent://public/default/" + topic;
        publish(producer().create(), 0, 100, number -> String.valueOf(number % 10));
        try (TableView<byte[]> view = client.newTableView(Schema.BYTES).topic(topic).create()) {
            expect(Arrays.equals(view.get("3"), body(93)), "the view has " + view.size() + " keys");
            publish(producer().create(), 100, 1, number -> "3");
            waitUntil(() -> Arrays.equals(view.get("3"), body(100)), "the view follows");
        }
    }

    /** Batches with deleted and repeated keys, chunks and a tail; a reader, a durable consumer and a table view. */
    void compaction() throws Exception {
        topic = "persistent://public/default/" + topic;
        Producer<byte[]> producer = producer().batchingMaxMessages(7).create();
        for (int number = 0; number < 100; number++) {
            TypedMessageBuilder<byte[]> message = producer.newMessage().key("k" + number % 10);
            (number == 93 ? message.value(null) : message.value(body(number))).sendAsync();
        }
        producer.flush();
        byte[] large = new byte[6 << 20];
        new Random(3).nextBytes(large);
        for (int time = 0; time < 2; time++) {
            unbatchedChunks().newMessage().key("large").value(large).send();
        }
        String path = topic.replace("://", "/") + "/compaction";
        expect(ask("PUT", path, "") == 204, "compaction refused");
        waitUntil(() -> compacted(path), "the compaction ends");
        publish(unbatched(), 100, 1, number -> "k4");
        Map<String, byte[]> expected = new LinkedHashMap<>();
        for (int number = 90; number < 100; number++) {
            expected.put("k" + number % 10, body(number));
        }
        expected.remove("k3");
        List<String> order = new ArrayList<>(expected.keySet());
        order.addAll(List.of("large", "k4"));
        try (Reader<byte[]> reader =
                client.newReader().topic(topic).readCompacted(true).startMessageId(MessageId.earliest).create()) {
            for (String key : order) {
                expect(reader.hasMessageAvailable(), "nothing for " + key);
                Message<byte[]> message = reader.readNext(ARRIVES_S, TimeUnit.SECONDS);
                expect(message != null && key.equals(message.getKey()), "another key than " + key);
            }
            expect(!reader.hasMessageAvailable(), "more than the latest messages");
        }
        Consumer<byte[]> consumer = consumer().subscriptionType(SubscriptionType.Exclusive).readCompacted(true).subscribe();
        for (String key : order) {
            expect(key.equals(next(consumer).getKey()), "the consumer got another key than " + key);
        }
        expected.put("k4", body(100));
        expected.put("large", large);
        try (TableView<byte[]> view = client.newTableView(Schema.BYTES).topic(topic).create()) {
            expect(view.keySet().equals(expected.keySet()), "the view has " + view.keySet());
            expected.forEach((key, value) -> expect(Arrays.equals(view.get(key), value), "wrong value of " + key));
        }
    }

    boolean compacted(String path) {
        try {
            HttpRequest request = HttpRequest.newBuilder(URI.create(adminUrl + "/admin/v2/" + path)).build();
            return HTTP.send(request, HttpResponse.BodyHandlers.ofString()).body().contains("SUCCESS");
        } catch (Exception failure) {
            throw new IllegalStateException(failure);
        }
    }

    Producer<byte[]> unbatchedChunks() throws Exception {
        return client.newProducer().topic(topic).enableBatching(false).enableChunking(true).create();
    }

    void endOfTopic() throws Exception {
        Consumer<byte[]> consumer = consumer().isAckReceiptEnabled(true).acknowledgmentGroupTime(0, TimeUnit.SECONDS).subscribe();
        Producer<byte[]> producer = unbatched();
        publish(producer, 0, 10);
        int status = ask("POST", "persistent/public/default/" + topic + "/terminate", "");
        expect(status == 200, "status " + status);
        receive(consumer, 0, 10);
        waitUntil(consumer::hasReachedEndOfTopic, "the end of the topic is told");
        try {
            producer.send(body(10));
            throw new AssertionError("published on a terminated topic");
        } catch (PulsarClientException.TopicTerminatedException expected) {
            nothingComes(consumer);
        }
    }

    /** The listener is told once, also of a reader's topic and when the client subscribes after the end. */
    void endIsCalledBack() throws Exception {
        publish(unbatched(), 0, 5);
        AtomicInteger received = new AtomicInteger();
        AtomicInteger ends = new AtomicInteger();
        MessageListener<byte[]> listener = new MessageListener<>() {
            @Override
            public void received(Consumer<byte[]> consumer, Message<byte[]> message) {
                received.incrementAndGet();
                consumer.acknowledgeAsync(message);
            }

            @Override
            public void reachedEndOfTopic(Consumer<byte[]> consumer) {
                ends.incrementAndGet();
            }
        };
        Consumer<byte[]> first = consumer().messageListener(listener).subscribe();
        waitUntil(() -> received.get() == 5, "all messages are received");
        expect(!first.hasReachedEndOfTopic() && ends.get() == 0, "told before the end");
        int status = ask("POST", "persistent/public/default/" + topic + "/terminate", "");
        expect(status == 200, "status " + status);
        waitUntil(() -> ends.get() == 1 && first.hasReachedEndOfTopic(), "the listener is told");
        first.close();
        Consumer<byte[]> late = consumer().messageListener(listener).subscribe();
        waitUntil(() -> ends.get() == 2 && late.hasReachedEndOfTopic(), "a late consumer is told");
        try (Reader<byte[]> reader = client.newReader().topic(topic).startMessageId(MessageId.earliest).create()) {
            for (int number = 0; number < 5; number++) {
                expect(!reader.hasReachedEndOfTopic(), "the reader is told too early");
                expect(Arrays.equals(reader.readNext(ARRIVES_S, TimeUnit.SECONDS).getData(), body(number)), "other bytes");
            }
            waitUntil(reader::hasReachedEndOfTopic, "the reader is told");
        }
        expect(received.get() == 5, "received again");
    }

    void pauseAndResume() throws Exception {
        Consumer<byte[]> consumer = consumer().receiverQueueSize(10).subscribe();
        consumer.pause();
        publish(unbatched(), 0, 100);
        consumer.resume();
        receive(consumer, 0, 100);
    }

    // Transactions. The broker runs with transactionCoordinatorEnabled=true.

    /** This bench with a client that may begin transactions. */
    Interop transactional() throws PulsarClientException {
        PulsarClient one = PulsarClient.builder()
                .serviceUrl(pulsarUrl)
                .operationTimeout(ARRIVES_S, TimeUnit.SECONDS)
                .enableTransaction(true)
                .build();
        return new Interop(pulsarUrl, adminUrl, one, topic);
    }

    Transaction begin(int timeoutS) throws Exception {
        return client.newTransaction().withTransactionTimeout(timeoutS, TimeUnit.SECONDS).build().get(
                ARRIVES_S, TimeUnit.SECONDS);
    }

    Producer<byte[]> endless() throws PulsarClientException {
        return producer().sendTimeout(0, TimeUnit.SECONDS).create();
    }

    static void publish(Producer<byte[]> producer, Transaction transaction, int first, int count) throws Exception {
        List<CompletableFuture<MessageId>> pending = new ArrayList<>();
        for (int number = first; number < first + count; number++) {
            pending.add(producer.newMessage(transaction).value(body(number)).sendAsync());
        }
        for (CompletableFuture<MessageId> one : pending) {
            one.get(ARRIVES_S, TimeUnit.SECONDS);
        }
    }

    static void end(CompletableFuture<Void> end) throws Exception {
        end.get(ARRIVES_S, TimeUnit.SECONDS);
    }

    void transactionCommit() throws Exception {
        Interop bench = transactional();
        Consumer<byte[]> consumer = bench.consumer().subscribe();
        Producer<byte[]> producer = bench.endless();
        Transaction transaction = bench.begin(60);
        publish(producer, transaction, 0, 10);
        publish(producer, 10, 5);
        // Messages outside of the transaction stand behind it, so they wait too.
        nothingComes(consumer);
        end(transaction.commit());
        receive(consumer, 0, 15);
        nothingComes(consumer);
    }

    void transactionAbort() throws Exception {
        Interop bench = transactional();
        Consumer<byte[]> consumer = bench.consumer().subscribe();
        Consumer<byte[]> shared = bench.consumer()
                .subscriptionName("shared").subscriptionType(SubscriptionType.Shared).subscribe();
        Producer<byte[]> producer = bench.endless();
        Transaction aborted = bench.begin(60);
        Transaction committed = bench.begin(60);
        publish(producer, 0, 2);
        publish(producer, aborted, 100, 10);
        publish(producer, committed, 2, 3);
        end(committed.commit());
        receive(consumer, 0, 2);
        nothingComes(consumer);
        end(aborted.abort());
        receive(consumer, 2, 3);
        receive(shared, 0, 5);
        nothingComes(consumer);
        nothingComes(shared);
        try (Reader<byte[]> reader = bench.client.newReader()
                .topic(topic).startMessageId(MessageId.earliest).create()) {
            for (int number = 0; number < 5; number++) {
                expect(Arrays.equals(reader.readNext(ARRIVES_S, TimeUnit.SECONDS).getData(), body(number)), "order");
            }
            expect(!reader.hasMessageAvailable(), "the marker counts as a message");
        }
    }

    void transactionAcks() throws Exception {
        Interop bench = transactional();
        for (SubscriptionType type : List.of(
                SubscriptionType.Exclusive, SubscriptionType.Shared, SubscriptionType.Key_Shared)) {
            ConsumerBuilder<byte[]> builder =
                    bench.consumer().subscriptionName(type.name()).subscriptionType(type);
            Consumer<byte[]> consumer = builder.subscribe();
            Producer<byte[]> producer = bench.producer().enableBatching(false).create();
            publish(producer, 0, 5, number -> "k" + number);
            producer.close();
            Transaction aborted = bench.begin(60);
            for (int number = 0; number < 5; number++) {
                end(consumer.acknowledgeAsync(next(consumer).getMessageId(), aborted));
            }
            end(aborted.abort());
            Transaction committed = bench.begin(60);
            Set<String> again = new TreeSet<>();
            for (int number = 0; number < 5; number++) {
                Message<byte[]> message = next(consumer);
                again.add(text(message));
                end(consumer.acknowledgeAsync(message.getMessageId(), committed));
            }
            expect(again.size() == 5, type + ": redelivered after the abort: " + again);
            consumer.close();
            // Acknowledged by an open transaction: not delivered to the next consumer either.
            consumer = builder.subscribe();
            nothingComes(consumer);
            end(committed.commit());
            consumer.close();
            consumer = builder.subscribe();
            nothingComes(consumer);
            consumer.close();
            bench.topic += "-" + type.name();
        }
    }

    void transactionAcksInBatches() throws Exception {
        Interop bench = transactional();
        Consumer<byte[]> consumer = bench.consumer().subscriptionType(SubscriptionType.Shared).subscribe();
        Producer<byte[]> producer = bench.producer().batchingMaxPublishDelay(1, TimeUnit.SECONDS).create();
        publish(producer, 0, 6);
        Transaction first = bench.begin(60);
        Transaction second = bench.begin(60);
        for (int number = 0; number < 6; number++) {
            end(consumer.acknowledgeAsync(next(consumer).getMessageId(), number % 2 == 0 ? first : second));
        }
        end(first.commit());
        end(second.abort());
        for (int number = 1; number < 6; number += 2) {
            Message<byte[]> message = next(consumer);
            expect(Arrays.equals(message.getData(), body(number)), text(message) + " came instead of " + number);
            consumer.acknowledge(message);
        }
        nothingComes(consumer);
    }

    void transactionCumulativeAck() throws Exception {
        Interop bench = transactional();
        Consumer<byte[]> consumer = bench.consumer().subscribe();
        publish(bench.unbatched(), 0, 10);
        MessageId last = null;
        for (int number = 0; number < 6; number++) {
            last = next(consumer).getMessageId();
        }
        Transaction aborted = bench.begin(60);
        end(consumer.acknowledgeCumulativeAsync(last, aborted));
        end(aborted.abort());
        Transaction committed = bench.begin(60);
        end(consumer.acknowledgeCumulativeAsync(last, committed));
        end(committed.commit());
        consumer.close();
        receive(bench.consumer().subscribe(), 6, 4);
    }

    void transactionConflict() throws Exception {
        Interop bench = transactional();
        Consumer<byte[]> consumer = bench.consumer().subscriptionType(SubscriptionType.Shared).subscribe();
        publish(bench.unbatched(), 0, 1);
        MessageId id = next(consumer).getMessageId();
        Transaction first = bench.begin(60);
        Transaction second = bench.begin(60);
        end(consumer.acknowledgeAsync(id, first));
        try {
            end(consumer.acknowledgeAsync(id, second));
            throw new AssertionError("two transactions acknowledged one message");
        } catch (ExecutionException refused) {
            expect(refused.getCause() instanceof PulsarClientException.TransactionConflictException,
                    "refused with " + refused.getCause());
        }
        end(first.commit());
    }

    void transactionTimeOut() throws Exception {
        Interop bench = transactional();
        Consumer<byte[]> consumer = bench.consumer().subscribe();
        Producer<byte[]> producer = bench.endless();
        Transaction transaction = bench.begin(1);
        publish(producer, transaction, 100, 3);
        publish(producer, 0, 2);
        // They come when the broker has aborted the transaction, which nobody ends.
        receive(consumer, 0, 2);
        try {
            end(transaction.commit());
            throw new AssertionError("committed after its time");
        } catch (ExecutionException refused) {
            expect(refused.getCause() != null, "refused");
        }
        nothingComes(consumer);
    }

    void transactionFromTopicToTopic() throws Exception {
        Interop bench = transactional();
        Consumer<byte[]> source = bench.consumer().subscriptionType(SubscriptionType.Shared).subscribe();
        Producer<byte[]> plain = bench.unbatched();
        bench.topic += "-target";
        Consumer<byte[]> target = bench.consumer().subscribe();
        Producer<byte[]> producer = bench.endless();
        publish(plain, 0, 50);
        for (int round = 0; round < 5; round++) {
            Transaction transaction = bench.begin(60);
            for (int number = 0; number < 10; number++) {
                Message<byte[]> message = next(source);
                producer.newMessage(transaction).value(message.getData()).sendAsync();
                source.acknowledgeAsync(message.getMessageId(), transaction);
            }
            end(transaction.commit());
        }
        receive(target, 0, 50);
        nothingComes(target);
        nothingComes(source);
    }
}
