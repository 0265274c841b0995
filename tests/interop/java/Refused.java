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
 * Refused messages among good ones: `java Refused.java PULSAR_URL ADMIN_URL [CHECK...]` sends without waiting, and prints a line
 * for each check: `ok NAME` or `failed NAME: REASON`. A good message must be stored once, a refused one fail its future once,
 * and the producer keep its connection.
 */
public final class Refused {
    interface Bad {
        TypedMessageBuilder<String> message(Refused bench, Producer<String> producer) throws Exception;
    }

    static final int ROUNDS = 5;
    static final int IN_A_ROW = 4;
    static final Map<String, Bad> REASONS = new LinkedHashMap<>();

    static {
        REASONS.put("aborted_transaction", (bench, producer) -> producer.newMessage(bench.aborted(producer)).value("bad"));
        REASONS.put("too_large", (bench, producer) -> producer.newMessage().value("x".repeat(5000)));
        REASONS.put("delay_too_long", (bench, producer) -> producer.newMessage().value("bad").deliverAfter(1, TimeUnit.HOURS));
    }

    final String adminUrl;
    final PulsarClient client;
    final String topic;
    Transaction transaction;

    Refused(String adminUrl, PulsarClient client, String topic) {
        this.adminUrl = adminUrl;
        this.client = client;
        this.topic = topic;
    }

    public static void main(String[] arguments) throws Exception {
        List<String> wanted = List.of(arguments).subList(2, arguments.length);
        for (Map.Entry<String, Bad> reason : REASONS.entrySet()) {
            for (boolean batched : new boolean[] {false, true}) {
                String name = reason.getKey() + (batched ? "_batched" : "");
                if (!wanted.isEmpty() && !wanted.contains(name)) {
                    continue;
                }
                String topic = "public/default/refused-" + name + "-" + Long.toHexString(System.nanoTime());
                PulsarClient client = PulsarClient.builder().serviceUrl(arguments[0]).enableTransaction(true).build();
                try {
                    new Refused(arguments[1], client, topic).run(reason.getValue(), batched);
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
        ask("POST", "/admin/v2/persistent/" + topic + "/maxMessageSize", "2000");
        ask("POST", "/admin/v2/persistent/" + topic + "/delayedDelivery",
                "{\"active\": true, \"tickTime\": 1000, \"maxDeliveryDelayInMillis\": 60000}");
        Producer<String> producer = client.newProducer(Schema.STRING).topic(topic).enableBatching(batched)
                .sendTimeout(0, TimeUnit.SECONDS)
                .batchingMaxMessages(IN_A_ROW).batchingMaxPublishDelay(20, TimeUnit.MILLISECONDS)
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
            one.get(20, TimeUnit.SECONDS);
        }
        for (CompletableFuture<MessageId> one : refused) {
            try {
                one.get(20, TimeUnit.SECONDS);
                throw new AssertionError("a message that must be refused was stored");
            } catch (TimeoutException silent) {
                throw new AssertionError("a refused message got no answer");
            } catch (ExecutionException error) {
                expect(error.getCause() instanceof PulsarClientException, "refused with " + error.getCause());
            }
        }
        TreeSet<String> values = new TreeSet<>();
        int got = 0;
        for (Message<String> message; (message = consumer.receive(500, TimeUnit.MILLISECONDS)) != null; got++) {
            values.add(message.getValue());
        }
        expect(got == stored.size() && values.size() == got, "stored " + got + " of " + stored.size() + ", " + values.size() + " different ones");
    }
}
