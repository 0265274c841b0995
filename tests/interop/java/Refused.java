import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.pulsar.client.api.BatcherBuilder;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.TypedMessageBuilder;
import org.apache.pulsar.client.api.transaction.Transaction;

/**
 * Refused messages among good ones: `java Refused.java PULSAR_URL ADMIN_URL REASON...` sends without waiting, not batched and
 * batched, and prints a line for each check: `ok NAME` or `failed NAME: REASON`. A good message must be stored once, a refused
 * one fail its future once, and the producer keep its connection. A message that fails on its way must be stored once too.
 * The broker has a listener `proxy`, which damages messages with `flip` once and forges those with `forge`.
 */
public final class Refused {
    interface Bad {
        TypedMessageBuilder<String> message(Refused bench, Producer<String> producer) throws Exception;
    }

    /** Makes a topic refuse every message; `end` gives it back, null where nothing does. */
    interface Change {
        void apply(Refused bench) throws Exception;
    }

    record Gate(Change begin, Change end) {
    }

    /** A message with this text fails on its way and is sent again by the client itself. `begin`: null where nothing is to be set. */
    record Fault(String text, Change begin) {
    }

    static final int ROUNDS = 5;
    static final int IN_A_ROW = 4;
    static final int WAIT_S = 60;
    static final int SILENCE_MS = 500;
    static final Map<String, Bad> REASONS = new LinkedHashMap<>();
    static final Map<String, Fault> FAULTS = new LinkedHashMap<>();
    static final Map<String, Gate> GATES = new LinkedHashMap<>();

    static {
        REASONS.put("aborted_transaction", (bench, producer) -> producer.newMessage(bench.aborted(producer)).value("bad"));
        REASONS.put("too_large", (bench, producer) -> producer.newMessage().value("x".repeat(5000)));
        REASONS.put("delay_too_long", (bench, producer) -> producer.newMessage().value("bad").deliverAfter(1, TimeUnit.HOURS));
        REASONS.put("forged_metadata", (bench, producer) -> producer.newMessage().value("forge me"));
        FAULTS.put("checksum", new Fault("flip ", null));
        FAULTS.put("checksum_deduplicated", new Fault("flip ", bench ->
                bench.ask("POST", bench.topicPath() + "/deduplicationEnabled", "true")));
        FAULTS.put("full_disk", new Fault("stored late ", bench -> bench.fail("FullDisk")));
        FAULTS.put("fenced", new Fault("stored late ", bench -> bench.fail("Fenced")));
        GATES.put("encryption_required", new Gate(
                bench -> bench.ask("POST", bench.namespacePath() + "/encryptionRequired", "true"),
                bench -> bench.ask("POST", bench.namespacePath() + "/encryptionRequired", "false")));
        GATES.put("backlog_quota", new Gate(
                bench -> {
                    bench.ask("POST", bench.namespacePath() + "/backlogQuota",
                            "{\"limitSize\": 1, \"policy\": \"producer_exception\"}");
                    bench.untilNoProducer();
                },
                bench -> bench.ask("DELETE", bench.namespacePath() + "/backlogQuota", "")));
        GATES.put("terminated", new Gate(bench -> bench.ask("POST", bench.topicPath() + "/terminate", ""), null));
    }

    final String adminUrl;
    final PulsarClient client;
    final String namespace;
    final String topic;
    Transaction transaction;

    Refused(String adminUrl, PulsarClient client, String namespace, String name) {
        this.adminUrl = adminUrl;
        this.client = client;
        this.namespace = namespace;
        this.topic = namespace + "/refused-" + name;
    }

    String namespacePath() {
        return "/admin/v2/namespaces/" + namespace;
    }

    String topicPath() {
        return "/admin/v2/persistent/" + topic;
    }

    void untilNoProducer() throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
        while (!ask("GET", topicPath() + "/stats", "").replace(" ", "").contains("\"publishers\":[]")) {
            expect(System.nanoTime() < end, "the producer stays above the quota");
            Thread.sleep(50);
        }
    }

    public static void main(String[] arguments) throws Exception {
        List<String> wanted = List.of(arguments).subList(2, arguments.length);
        List<String> reasons = new ArrayList<>(REASONS.keySet());
        reasons.addAll(FAULTS.keySet());
        reasons.addAll(GATES.keySet());
        for (String reason : reasons) {
            for (boolean batched : new boolean[] {false, true}) {
                String name = reason + (batched ? "_batched" : "");
                if (!wanted.contains(reason)) {
                    continue;
                }
                PulsarClient client = PulsarClient.builder().serviceUrl(arguments[0]).listenerName("proxy")
                        .enableTransaction(true).build();
                String own = name + "-" + Long.toHexString(System.nanoTime());
                try {
                    if (REASONS.containsKey(reason)) {
                        new Refused(arguments[1], client, "public/default", own).run(REASONS.get(reason), batched);
                    } else if (FAULTS.containsKey(reason)) {
                        new Refused(arguments[1], client, "public/default", own).run(FAULTS.get(reason), batched);
                    } else {
                        new Refused(arguments[1], client, "public/" + own, own).run(GATES.get(reason), batched);
                    }
                    System.out.println("ok " + name);
                } catch (Exception | AssertionError failure) {
                    System.out.println("failed " + name + ": " + String.valueOf(failure).replace('\n', ' '));
                }
                client.closeAsync(); // Its threads take two seconds to end, which would add up over the checks.
            }
        }
        Runtime.getRuntime().halt(0);
    }

    static void expect(boolean good, String reason) {
        if (!good) {
            throw new AssertionError(reason);
        }
    }

    String ask(String method, String path, String body) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(adminUrl + path))
                .header("Content-Type", "application/json")
                .method(method, HttpRequest.BodyPublishers.ofString(body))
                .build();
        HttpResponse<String> answer =
                HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
        expect(answer.statusCode() < 300, method + " " + path + ": " + answer.statusCode() + " " + answer.body());
        return answer.body();
    }

    /** A transaction that has the topic, that the broker has aborted, and that the client believes to be open. */
    Transaction aborted(Producer<String> producer) throws Exception {
        if (transaction == null) {
            transaction = client.newTransaction().withTransactionTimeout(5, TimeUnit.MINUTES).build().get();
            producer.newMessage(transaction).value("taken back").send();
            String id = transaction.getTxnID().getMostSigBits() + "/" + transaction.getTxnID().getLeastSigBits();
            ask("POST", "/admin/v3/transactions/abortTransaction/" + id, "");
        }
        return transaction;
    }

    void run(Bad bad, boolean batched) throws Exception {
        Consumer<String> consumer = client.newConsumer(Schema.STRING).topic(topic).subscriptionName("s")
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe();
        ask("POST", topicPath() + "/maxMessageSize", "2000");
        ask("POST", topicPath() + "/delayedDelivery",
                "{\"active\": true, \"tickTime\": 1000, \"maxDeliveryDelayInMillis\": 60000}");
        Producer<String> producer = client.newProducer(Schema.STRING).topic(topic).enableBatching(batched)
                .sendTimeout(0, TimeUnit.SECONDS)
                // By number alone: a delay that ends early would put good and bad messages into one batch.
                .batchingMaxMessages(IN_A_ROW).batchingMaxPublishDelay(1, TimeUnit.MINUTES)
                .batcherBuilder(BatcherBuilder.DEFAULT).create();
        List<CompletableFuture<MessageId>> refused = new ArrayList<>();
        List<CompletableFuture<MessageId>> stored = new ArrayList<>();
        for (int round = 0; round < ROUNDS; round++) {
            for (int number = 0; number < IN_A_ROW; number++) {
                stored.add(producer.newMessage().value("good " + stored.size()).sendAsync());
            }
            for (int number = 0; number < IN_A_ROW; number++) {
                refused.add(bad.message(this, producer).sendAsync());
            }
        }
        producer.flushAsync();
        for (CompletableFuture<MessageId> one : stored) {
            one.get(WAIT_S, TimeUnit.SECONDS);
        }
        for (CompletableFuture<MessageId> one : refused) {
            try {
                one.get(WAIT_S, TimeUnit.SECONDS);
                throw new AssertionError("a message that must be refused was stored");
            } catch (TimeoutException silent) {
                throw new AssertionError("a refused message got no answer");
            } catch (ExecutionException error) {
                expect(error.getCause() instanceof PulsarClientException, "refused with " + error.getCause());
            }
        }
        expectStored(consumer, stored.size());
    }

    /** Of the entries to come the third one and three more are not stored. */
    void fail(String error) throws Exception {
        ask("POST", "/magnetar/test/faults",
                "{\"on\": \"STORAGE_ADD\", \"do\": \"refuse\", \"error\": \"" + error + "\", \"at\": 3, \"times\": 4}");
    }

    /** Every message is stored once, in order, although some failed on their way. */
    void run(Fault fault, boolean batched) throws Exception {
        Consumer<String> consumer = client.newConsumer(Schema.STRING).topic(topic).subscriptionName("s")
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe();
        if (fault.begin() != null) {
            fault.begin().apply(this);
        }
        Producer<String> producer = client.newProducer(Schema.STRING).topic(topic).enableBatching(batched)
                .sendTimeout(0, TimeUnit.SECONDS)
                .batchingMaxMessages(IN_A_ROW).batchingMaxPublishDelay(1, TimeUnit.MINUTES)
                .batcherBuilder(BatcherBuilder.DEFAULT).create();
        List<String> values = new ArrayList<>();
        List<CompletableFuture<MessageId>> answers = new ArrayList<>();
        for (int number = 0; number < 2 * ROUNDS * IN_A_ROW; number++) {
            String value = (number / IN_A_ROW % 2 == 0 ? "good " : fault.text()) + number;
            values.add(value);
            answers.add(producer.newMessage().value(value).sendAsync());
        }
        producer.flushAsync();
        for (CompletableFuture<MessageId> one : answers) {
            one.get(WAIT_S, TimeUnit.SECONDS);
        }
        // By id: a fenced topic closes its consumer too, which may have begun to read, and gets those messages again.
        Map<MessageId, String> got = new LinkedHashMap<>();
        for (Message<String> message; (message = next(consumer, got.size() < values.size())) != null;) {
            got.put(message.getMessageId(), message.getValue());
        }
        expect(values.equals(List.copyOf(got.values())), "stored " + got.size() + " of " + values.size() + ": " + got);
    }

    /** Every message before the gate and after it is stored once, and none of those between; all are answered. */
    void run(Gate gate, boolean batched) throws Exception {
        ask("PUT", namespacePath(), "");
        Consumer<String> consumer = client.newConsumer(Schema.STRING).topic(topic).subscriptionName("s")
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe();
        Producer<String> producer = client.newProducer(Schema.STRING).topic(topic).enableBatching(batched)
                .sendTimeout(15, TimeUnit.SECONDS)
                .batchingMaxMessages(IN_A_ROW).batchingMaxPublishDelay(20, TimeUnit.MILLISECONDS).create();
        int stored = 0;
        for (CompletableFuture<MessageId> one : sent(producer, "good ")) {
            one.get(WAIT_S, TimeUnit.SECONDS);
            stored++;
        }
        gate.begin().apply(this);
        for (CompletableFuture<MessageId> one : sent(producer, "bad ")) {
            try {
                one.get(WAIT_S, TimeUnit.SECONDS);
                throw new AssertionError("a message that must be refused was stored");
            } catch (TimeoutException silent) {
                throw new AssertionError("a refused message got no answer");
            } catch (ExecutionException error) {
                expect(error.getCause() instanceof PulsarClientException, "refused with " + error.getCause());
            }
        }
        if (gate.end() != null) {
            gate.end().apply(this);
            producer.closeAsync(); // A client waits longer and longer before it opens a refused producer again.
            Producer<String> next = client.newProducer(Schema.STRING).topic(topic).enableBatching(batched).create();
            for (CompletableFuture<MessageId> one : sent(next, "good again ")) {
                one.get(WAIT_S, TimeUnit.SECONDS);
                stored++;
            }
        }
        expectStored(consumer, stored);
    }

    static List<CompletableFuture<MessageId>> sent(Producer<String> producer, String text) {
        List<CompletableFuture<MessageId>> answers = new ArrayList<>();
        for (int number = 0; number < ROUNDS * IN_A_ROW; number++) {
            answers.add(producer.newMessage().value(text + number).sendAsync());
        }
        return answers;
    }

    /** Null where no message came: after a short silence where none `must`. */
    static Message<String> next(Consumer<String> consumer, boolean must) throws Exception {
        return consumer.receive(must ? 1000 * WAIT_S : SILENCE_MS, TimeUnit.MILLISECONDS);
    }

    static void expectStored(Consumer<String> consumer, int stored) throws Exception {
        TreeSet<String> values = new TreeSet<>();
        int got = 0;
        for (Message<String> message; (message = next(consumer, got < stored)) != null; got++) {
            values.add(message.getValue());
        }
        expect(got == stored && values.size() == got, "stored " + got + " of " + stored + ", " + values.size() + " different ones");
    }
}
