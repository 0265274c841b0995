import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.pulsar.client.api.v5.Checkpoint;
import org.apache.pulsar.client.api.v5.CheckpointConsumer;
import org.apache.pulsar.client.api.v5.CheckpointConsumerBuilder;
import org.apache.pulsar.client.api.v5.Message;
import org.apache.pulsar.client.api.v5.MessageId;
import org.apache.pulsar.client.api.v5.Producer;
import org.apache.pulsar.client.api.v5.PulsarClient;
import org.apache.pulsar.client.api.v5.PulsarClientException;
import org.apache.pulsar.client.api.v5.QueueConsumer;
import org.apache.pulsar.client.api.v5.StreamConsumer;
import org.apache.pulsar.client.api.v5.Transaction;
import org.apache.pulsar.client.api.v5.config.BackoffPolicy;
import org.apache.pulsar.client.api.v5.config.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.v5.config.TransactionPolicy;
import org.apache.pulsar.client.api.v5.schema.Schema;

/**
 * The official client of Pulsar 5.0 on ordinary topics: `java Version5.java PULSAR_URL ADMIN_URL [CHECK...]` runs each check
 * on a topic without and on one with three partitions, and prints a line for each: `ok NAME` or `failed NAME: REASON`.
 * It exits 0 when all were run.
 */
public final class Version5 {
    interface Check {
        void run(Version5 bench) throws Exception;
    }

    interface Receiver {
        Message<String> receive(Duration longest) throws PulsarClientException;
    }

    /** Follows a broker that sends a request to the topic's owner. */
    static final HttpClient HTTP = HttpClient.newBuilder().followRedirects(HttpClient.Redirect.ALWAYS).build();
    static final int MESSAGES = 60;
    static final Duration ARRIVES = Duration.ofSeconds(60);
    static final Duration SILENCE = Duration.ofMillis(500);
    static final BackoffPolicy DELAY = BackoffPolicy.builder().initialInterval(Duration.ofSeconds(1))
            .maxInterval(Duration.ofSeconds(2)).multiplier(2).jitterPercent(0).build();
    static final Map<String, Check> CHECKS = new LinkedHashMap<>();

    static {
        CHECKS.put("produce_and_queue", Version5::queue);
        CHECKS.put("negative_ack_with_delay", Version5::negative);
        CHECKS.put("stream", Version5::stream);
        CHECKS.put("stream_resumed", Version5::streamResumed);
        CHECKS.put("two_streams", Version5::twoStreams);
        CHECKS.put("checkpoint", Version5::checkpoint);
        CHECKS.put("checkpoint_resumed", Version5::checkpointResumed);
        CHECKS.put("checkpoint_group", Version5::checkpointGroup);
        CHECKS.put("restart", Version5::restart);
        CHECKS.put("restart_of_resumed_stream", Version5::restartOfResumedStream);
        CHECKS.put("restart_of_groups_and_transactions", Version5::restartOfGroupsAndTransactions);
        CHECKS.put("restart_of_transactional_acks", Version5::restartOfTransactionalAcks);
        CHECKS.put("restart_of_negative_acks", Version5::restartOfNegativeAcks);
        CHECKS.put("transactional_produce", Version5::transactionalProduce);
        CHECKS.put("transactional_ack", Version5::transactionalAck);
    }

    final PulsarClient client;
    final String admin;
    final String topic;
    final int partitions;

    Version5(PulsarClient client, String admin, String topic, int partitions) {
        this.client = client;
        this.admin = admin;
        this.topic = topic;
        this.partitions = partitions;
    }

    public static void main(String[] arguments) throws Exception {
        List<String> chosen = List.of(arguments).subList(2, arguments.length);
        try (PulsarClient client = PulsarClient.builder()
                .serviceUrl(arguments[0])
                .transactionPolicy(TransactionPolicy.builder().timeout(Duration.ofSeconds(60)).build())
                .build()) {
            for (int partitions : new int[] {0, 3}) {
                for (Map.Entry<String, Check> check : CHECKS.entrySet()) {
                    String name = check.getKey() + (partitions == 0 ? "" : "_on_partitions");
                    if (!chosen.isEmpty() && !chosen.contains(name)) {
                        continue;
                    }
                    String topic = "v5-" + name + "-" + Long.toHexString(System.nanoTime());
                    create(arguments[1], topic, partitions);
                    try {
                        check.getValue().run(
                                new Version5(client, arguments[1], "persistent://public/default/" + topic, partitions));
                        System.out.println("ok " + name);
                    } catch (Exception | AssertionError error) {
                        System.out.println("failed " + name + ": " + String.valueOf(error).replace('\n', ' '));
                    }
                }
            }
        }
    }

    /** Waits until the broker has all acknowledgements, which the client sends after the call. */
    void awaitNothingUnacknowledged() throws IOException, InterruptedException {
        String path = "/admin/v2/" + topic.replace("://", "/") + (partitions == 0 ? "/stats" : "/partitioned-stats");
        HttpRequest request = HttpRequest.newBuilder(URI.create(admin + path)).build();
        long until = System.nanoTime() + ARRIVES.toNanos();
        String stats;
        do {
            check(System.nanoTime() < until, "acknowledgements did not reach the broker");
            Thread.sleep(20);
            stats = HTTP.send(request, HttpResponse.BodyHandlers.ofString()).body();
        } while (!stats.contains("\"unackedMessages\"") || stats.matches("(?s).*\"unackedMessages\": ?[1-9].*"));
    }

    static void create(String admin, String topic, int partitions) throws IOException, InterruptedException {
        String path = "/admin/v2/persistent/public/default/" + topic + (partitions == 0 ? "" : "/partitions");
        HttpRequest request = HttpRequest.newBuilder(URI.create(admin + path))
                .header("Content-Type", "application/json")
                .PUT(HttpRequest.BodyPublishers.ofString(partitions == 0 ? "" : String.valueOf(partitions)))
                .build();
        HttpResponse<String> answer = HTTP.send(request, HttpResponse.BodyHandlers.ofString());
        check(answer.statusCode() / 100 == 2, answer.statusCode() + " " + answer.body());
    }

    static void check(boolean holds, String reason) {
        if (!holds) {
            throw new AssertionError(reason);
        }
    }

    // Parts

    Set<String> publish(int first, int count) throws PulsarClientException {
        Set<String> sent = new TreeSet<>();
        try (Producer<String> producer = client.newProducer(Schema.string()).topic(topic).create()) {
            for (int number = first; number < first + count; number++) {
                String value = String.format("%05d", number);
                producer.newMessage().key("key-" + number % 10).value(value).send();
                sent.add(value);
            }
        }
        return sent;
    }

    List<Message<String>> drain(Receiver receiver, int count) throws PulsarClientException {
        List<Message<String>> got = new ArrayList<>();
        while (got.size() < count) {
            Message<String> message = receiver.receive(ARRIVES);
            check(message != null, "only " + got.size() + " of " + count + " messages arrived");
            got.add(message);
        }
        Message<String> more = receiver.receive(SILENCE);
        check(more == null, "a message too many: " + (more == null ? "" : more.value()));
        return got;
    }

    static void equal(Set<String> sent, List<Message<String>> got) {
        Set<String> values = new TreeSet<>();
        Map<String, String> last = new LinkedHashMap<>();
        for (Message<String> message : got) {
            values.add(message.value());
            String key = message.key().orElseThrow();
            String former = last.put(key, message.value());
            check(former == null || former.compareTo(message.value()) < 0, "out of order in " + key);
        }
        check(values.equals(sent) && got.size() == sent.size(), "sent " + sent.size() + ", got " + got.size());
    }

    QueueConsumer<String> queueConsumer() throws PulsarClientException {
        return client.newQueueConsumer(Schema.string()).topic(topic).subscriptionName("queue")
                .negativeAckRedeliveryBackoff(DELAY)
                .subscriptionInitialPosition(SubscriptionInitialPosition.EARLIEST).subscribe();
    }

    StreamConsumer<String> streamConsumer(String name) throws PulsarClientException {
        return client.newStreamConsumer(Schema.string()).topic(topic).subscriptionName("stream").consumerName(name)
                .subscriptionInitialPosition(SubscriptionInitialPosition.EARLIEST).subscribe();
    }

    CheckpointConsumerBuilder<String> checkpointConsumer(Checkpoint start) {
        return client.newCheckpointConsumer(Schema.string()).topic(topic).startPosition(start);
    }

    // Checks

    void queue() throws Exception {
        Set<String> sent = publish(0, MESSAGES);
        try (QueueConsumer<String> consumer = queueConsumer()) {
            List<Message<String>> got = drain(consumer::receive, MESSAGES);
            got.forEach(message -> consumer.acknowledge(message.id()));
            equal(sent, got);
        }
    }

    void negative() throws Exception {
        publish(0, 1);
        try (QueueConsumer<String> consumer = queueConsumer()) {
            Message<String> first = consumer.receive(ARRIVES);
            long refusedAt = System.nanoTime();
            consumer.negativeAcknowledge(first.id());
            Message<String> again = consumer.receive(ARRIVES);
            check(again != null && again.value().equals(first.value()), "it was not delivered again");
            check(System.nanoTime() - refusedAt >= Duration.ofMillis(900).toNanos(), "it came before its delay");
            check(again.redeliveryCount() == 1, "redelivery count " + again.redeliveryCount());
            consumer.acknowledge(again.id());
        }
    }

    void stream() throws Exception {
        Set<String> sent = publish(0, MESSAGES);
        try (StreamConsumer<String> consumer = streamConsumer("one")) {
            List<Message<String>> got = drain(consumer::receive, MESSAGES);
            consumer.acknowledgeCumulative(got.get(got.size() - 1).id());
            equal(sent, got);
        }
    }

    void streamResumed() throws Exception {
        stream();
        Set<String> later = publish(MESSAGES, MESSAGES);
        try (StreamConsumer<String> consumer = streamConsumer("one")) {
            equal(later, drain(consumer::receive, MESSAGES));
        }
    }

    /** The position of a stream that is closed survives the restart. */
    void restartOfResumedStream() throws Exception {
        stream();
        awaitRestart();
        Set<String> later = publish(MESSAGES, MESSAGES);
        try (StreamConsumer<String> consumer = streamConsumer("one")) {
            equal(later, drain(consumer::receive, MESSAGES));
        }
    }

    void twoStreams() throws Exception {
        try (StreamConsumer<String> one = streamConsumer("one"); StreamConsumer<String> two = streamConsumer("two")) {
            Set<String> sent = publish(0, MESSAGES);
            List<Message<String>> got = new ArrayList<>();
            Set<StreamConsumer<String>> served = new HashSet<>();
            long until = System.nanoTime() + ARRIVES.toNanos();
            while (got.size() < MESSAGES && System.nanoTime() < until) {
                for (StreamConsumer<String> consumer : List.of(one, two)) {
                    Message<String> message = consumer.receive(Duration.ofMillis(20));
                    if (message != null) {
                        got.add(message);
                        served.add(consumer);
                    }
                }
            }
            equal(sent, got);
            check(served.size() == (partitions == 0 ? 1 : 2), served.size() + " of two consumers got messages");
        }
    }

    void checkpoint() throws Exception {
        Set<String> sent = publish(0, MESSAGES);
        try (CheckpointConsumer<String> consumer = checkpointConsumer(Checkpoint.earliest()).create()) {
            equal(sent, drain(consumer::receive, MESSAGES));
        }
    }

    void checkpointResumed() throws Exception {
        publish(0, MESSAGES);
        byte[] position;
        try (CheckpointConsumer<String> consumer = checkpointConsumer(Checkpoint.earliest()).create()) {
            drain(consumer::receive, MESSAGES);
            position = consumer.checkpoint().toByteArray();
        }
        Set<String> later = publish(MESSAGES, MESSAGES);
        try (CheckpointConsumer<String> consumer = checkpointConsumer(Checkpoint.fromByteArray(position)).create()) {
            equal(later, drain(consumer::receive, MESSAGES));
        }
    }

    /** Says `restart` on its output, and goes on when its input has a line. */
    void restart() throws Exception {
        try (QueueConsumer<String> queue = queueConsumer();
                StreamConsumer<String> stream = streamConsumer("one");
                CheckpointConsumer<String> reader = checkpointConsumer(Checkpoint.earliest()).create();
                Producer<String> producer = client.newProducer(Schema.string()).topic(topic).create()) {
            Set<String> sent = new TreeSet<>();
            for (int number = 0; number < 2 * MESSAGES; number++) {
                if (number == MESSAGES) {
                    awaitRestart();
                }
                String value = String.format("%05d", number);
                producer.newMessage().key("key-" + number % 10).value(value).send();
                sent.add(value);
            }
            for (Receiver receiver : List.<Receiver>of(queue::receive, stream::receive, reader::receive)) {
                Set<String> got = new TreeSet<>();
                while (got.size() < sent.size()) {
                    Message<String> message = receiver.receive(ARRIVES);
                    check(message != null, "only " + got.size() + " of " + sent.size() + " messages arrived");
                    got.add(message.value());
                }
                check(got.equals(sent), "other messages than were sent");
            }
        }
    }

    static void awaitRestart() throws IOException {
        awaitRestart("restart");
    }

    /** @param how restart or kill: how the broker ends before its new start */
    static void awaitRestart(String how) throws IOException {
        System.out.println(how);
        check(System.in.read() >= 0, "nobody restarts the broker");
    }

    /** Receives until all these values have come; those that were not acknowledged may come twice. */
    static void collect(Set<String> wanted, Receiver... receivers) throws PulsarClientException {
        Set<String> missing = new TreeSet<>(wanted);
        long until = System.nanoTime() + ARRIVES.toNanos();
        while (!missing.isEmpty()) {
            check(System.nanoTime() < until, missing.size() + " of " + wanted.size() + " messages did not arrive");
            for (Receiver receiver : receivers) {
                Message<String> message = receiver.receive(Duration.ofMillis(20));
                if (message != null) {
                    missing.remove(message.value());
                }
            }
        }
    }

    /** What was begun before the restart ends after it: shares, positions, a transaction, a refused message. */
    void restartOfGroupsAndTransactions() throws Exception {
        Set<String> sent = publish(0, MESSAGES);
        byte[] position;
        try (CheckpointConsumer<String> reader = checkpointConsumer(Checkpoint.earliest()).create()) {
            drain(reader::receive, MESSAGES);
            position = reader.checkpoint().toByteArray();
        }
        try (QueueConsumer<String> queue = queueConsumer();
                StreamConsumer<String> one = streamConsumer("one");
                StreamConsumer<String> two = streamConsumer("two");
                CheckpointConsumer<String> member = checkpointConsumer(Checkpoint.earliest())
                        .consumerGroup("group").consumerName("one").create();
                Producer<String> producer = client.newProducer(Schema.string()).topic(topic).create()) {
            Message<String> refused = null;
            for (Message<String> message : drain(queue::receive, MESSAGES)) {
                if (refused == null) {
                    refused = message;
                } else {
                    queue.acknowledge(message.id());
                }
            }
            Transaction transaction = client.newTransaction();
            producer.newMessage().key("in").value("in").transaction(transaction).send();
            queue.negativeAcknowledge(refused.id());
            awaitRestart("kill");
            try {
                transaction.commit();
            } catch (PulsarClientException alreadyOver) {
                // The client asks again where a connection ended before the answer. Its message tells below.
            }
            sent.addAll(publish(MESSAGES, MESSAGES));
            sent.add("in");
            collect(Set.of(refused.value(), "in"), queue::receive);
            collect(sent, one::receive, two::receive);
            collect(sent, member::receive);
        }
        sent.removeIf(value -> !value.equals("in") && Integer.parseInt(value) < MESSAGES);
        try (CheckpointConsumer<String> reader = checkpointConsumer(Checkpoint.fromByteArray(position)).create()) {
            Set<String> got = new TreeSet<>();
            drain(reader::receive, MESSAGES + 1).forEach(message -> got.add(message.value()));
            check(got.equals(sent), "resumed at another place");
        }
    }

    /** Of two acknowledgements that wait for their transactions, one is committed after the restart, one is aborted. */
    void restartOfTransactionalAcks() throws Exception {
        publish(0, 2);
        try (QueueConsumer<String> consumer = queueConsumer()) {
            Transaction committed = client.newTransaction();
            Transaction aborted = client.newTransaction();
            for (Message<String> message : drain(consumer::receive, 2)) {
                consumer.acknowledge(message.id(), message.value().equals("00000") ? committed : aborted);
            }
            awaitNothingUnacknowledged();
            awaitRestart();
            // The same keys, so the same partitions: what they had before would come first.
            equal(publish(10, 2), acknowledged(consumer, 2));
            committed.commit();
            aborted.abort();
            equal(Set.of("00001"), acknowledged(consumer, 1));
        }
        awaitRestart();
        try (QueueConsumer<String> consumer = queueConsumer()) {
            equal(publish(20, 2), acknowledged(consumer, 2));
        }
    }

    /**
     * A refused message is not lost in the restart, and the delay holds again after it. The client alone counts the delay, so
     * the broker gives the message to a consumer that comes back, with the others that it has not acknowledged.
     */
    void restartOfNegativeAcks() throws Exception {
        Set<String> sent = publish(0, 2);
        try (QueueConsumer<String> consumer = queueConsumer()) {
            drain(consumer::receive, 2).forEach(message -> consumer.negativeAcknowledge(message.id()));
            awaitRestart();
            // The delay of before may end only now, and bring a message twice.
            Map<String, Message<String>> after = new TreeMap<>();
            Message<String> message;
            while ((message = consumer.receive(after.size() < 2 ? ARRIVES : Duration.ofSeconds(2))) != null) {
                after.put(message.value(), message);
            }
            check(after.keySet().equals(sent), "got " + after.keySet());
            Message<String> refused = after.remove(sent.iterator().next());
            after.values().forEach(other -> consumer.acknowledge(other.id()));
            long refusedAt = System.nanoTime();
            consumer.negativeAcknowledge(refused.id());
            Message<String> again = consumer.receive(ARRIVES);
            check(System.nanoTime() - refusedAt >= Duration.ofMillis(900).toNanos(), "it came before its delay");
            check(again != null && again.value().equals(refused.value()), "it was not delivered again");
            consumer.acknowledge(again.id());
        }
    }

    List<Message<String>> acknowledged(QueueConsumer<String> consumer, int count) throws PulsarClientException {
        List<Message<String>> got = drain(consumer::receive, count);
        got.forEach(message -> consumer.acknowledge(message.id()));
        return got;
    }

    void checkpointGroup() throws Exception {
        Set<String> sent = publish(0, MESSAGES);
        try (CheckpointConsumer<String> consumer = checkpointConsumer(Checkpoint.earliest())
                .consumerGroup("group").consumerName("one").create()) {
            equal(sent, drain(consumer::receive, MESSAGES));
        }
    }

    void transactionalProduce() throws Exception {
        try (QueueConsumer<String> consumer = queueConsumer();
                Producer<String> producer = client.newProducer(Schema.string()).topic(topic).create()) {
            for (String word : List.of("aborted", "committed")) {
                Transaction transaction = client.newTransaction();
                producer.newMessage().key(word).value(word).transaction(transaction).send();
                check(consumer.receive(SILENCE) == null, "visible before the end of its transaction");
                if (word.equals("aborted")) {
                    transaction.abort();
                } else {
                    transaction.commit();
                }
            }
            Message<String> message = consumer.receive(ARRIVES);
            check(message != null && message.value().equals("committed"), "the committed message did not arrive");
            consumer.acknowledge(message.id());
        }
    }

    void transactionalAck() throws Exception {
        publish(0, 1);
        try (QueueConsumer<String> consumer = queueConsumer()) {
            Transaction aborted = client.newTransaction();
            consumer.acknowledge(consumer.receive(ARRIVES).id(), aborted);
            aborted.abort();
        }
        MessageId acknowledged;
        try (QueueConsumer<String> consumer = queueConsumer()) {
            Message<String> again = consumer.receive(ARRIVES);
            check(again != null, "an aborted acknowledgement took the message away");
            acknowledged = again.id();
            Transaction committed = client.newTransaction();
            consumer.acknowledge(acknowledged, committed);
            committed.commit();
        }
        try (QueueConsumer<String> consumer = queueConsumer()) {
            check(consumer.receive(Duration.ofSeconds(1)) == null, "a committed acknowledgement was lost");
        }
    }
}
