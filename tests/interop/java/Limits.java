import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerBuilder;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;

/**
 * Limits as the official Java client feels them: `java Limits.java PULSAR_URL ADMIN_URL [CHECK...]` runs the checks, each on
 * topics of its own, and prints a line for each: `ok NAME` or `failed NAME: REASON`. It exits 0 when all were run.
 */
public final class Limits {
    interface Check {
        void run(Limits bench) throws Exception;
    }

    interface Attempt {
        void run() throws Exception;
    }

    static final int ARRIVES_S = 60;
    static final int SILENCE_MS = 300;
    static final int LIMIT = 5;
    static final Pattern LIMITED = Pattern.compile("\"publishRateLimitedTimes\":\\s*(\\d+)");
    /** Requests about a topic are sent on to its owner. */
    static final HttpClient HTTP = HttpClient.newBuilder().followRedirects(HttpClient.Redirect.ALWAYS).build();
    static final Map<String, Check> CHECKS = new LinkedHashMap<>();

    static {
        CHECKS.put("publish_rate", Limits::publishRate);
        CHECKS.put("publish_rate_of_the_namespace", Limits::publishRateOfNamespace);
        CHECKS.put("max_producers", Limits::maxProducers);
        CHECKS.put("max_consumers", bench -> bench.maxConsumers("maxConsumers"));
        CHECKS.put("max_consumers_per_subscription", bench -> bench.maxConsumers("maxConsumersPerSubscription"));
        CHECKS.put("max_subscriptions", Limits::maxSubscriptions);
        CHECKS.put("max_unacked_on_consumer", bench -> bench.maxUnacked("maxUnackedMessagesOnConsumer"));
        CHECKS.put("max_unacked_on_subscription", bench -> bench.maxUnacked("maxUnackedMessagesOnSubscription"));
        CHECKS.put("max_message_size", Limits::maxMessageSize);
        CHECKS.put("subscription_types", Limits::subscriptionTypes);
        CHECKS.put("dispatch_rate", Limits::dispatchRate);
        CHECKS.put("subscribe_rate", Limits::subscribeRate);
    }

    final String pulsarUrl;
    final String adminUrl;
    final PulsarClient client;
    String topic;

    Limits(String pulsarUrl, String adminUrl, PulsarClient client, String topic) {
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
            String topic = "public/default/limits-" + Long.toHexString(run) + "-" + check.getKey();
            PulsarClient client = connect(arguments[0]);
            try {
                check.getValue().run(new Limits(arguments[0], arguments[1], client, topic));
                System.out.println("ok " + check.getKey());
            } catch (Exception | AssertionError failure) {
                String reason = String.valueOf(failure).replace('\n', ' ');
                System.out.println("failed " + check.getKey() + ": " + reason);
            }
            client.closeAsync(); // Its threads take two seconds to end, which would add up over the checks.
        }
        Runtime.getRuntime().halt(0);
    }

    static PulsarClient connect(String url) throws PulsarClientException {
        return PulsarClient.builder().serviceUrl(url).operationTimeout(ARRIVES_S, TimeUnit.SECONDS).build();
    }

    static void expect(boolean good, String reason) {
        if (!good) {
            throw new AssertionError(reason);
        }
    }

    static void refused(Class<? extends PulsarClientException> kind, Attempt attempt) throws Exception {
        try {
            attempt.run();
        } catch (PulsarClientException error) {
            expect(kind.isInstance(error), "refused with " + error);
            return;
        }
        throw new AssertionError("was let in");
    }

    String ask(String method, String path, String body) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(adminUrl + "/admin/v2/" + path))
                .header("Content-Type", "application/json")
                .method(method, HttpRequest.BodyPublishers.ofString(body))
                .build();
        HttpResponse<String> answer = HTTP.send(request, HttpResponse.BodyHandlers.ofString());
        expect(answer.statusCode() < 300, method + " " + path + ": " + answer.statusCode() + " " + answer.body());
        return answer.body();
    }

    void set(String word, Object value) throws Exception {
        ask("POST", "persistent/" + topic + "/" + word, String.valueOf(value));
    }

    void remove(String word) throws Exception {
        ask("DELETE", "persistent/" + topic + "/" + word, "");
    }

    int limitedTimes() throws Exception {
        Matcher found = LIMITED.matcher(ask("GET", "persistent/" + topic + "/stats", ""));
        expect(found.find(), "the statistics lack publishRateLimitedTimes");
        return Integer.parseInt(found.group(1));
    }

    Producer<byte[]> producer(String name) throws PulsarClientException {
        return client.newProducer().topic(topic).producerName(name).enableBatching(false).blockIfQueueFull(true).create();
    }

    ConsumerBuilder<byte[]> consumer() {
        return client.newConsumer()
                .topic(topic)
                .subscriptionName("s")
                .subscriptionType(SubscriptionType.Shared)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest);
    }

    static void publish(Producer<byte[]> producer, int first, int count) throws Exception {
        List<CompletableFuture<MessageId>> pending = new ArrayList<>();
        for (int number = first; number < first + count; number++) {
            pending.add(producer.sendAsync(("message " + number).getBytes()));
        }
        for (CompletableFuture<MessageId> one : pending) {
            one.get(2 * ARRIVES_S, TimeUnit.SECONDS);
        }
    }

    static List<Message<byte[]>> take(Consumer<byte[]> consumer, int first, int count) throws Exception {
        List<Message<byte[]>> messages = new ArrayList<>();
        for (int number = first; number < first + count; number++) {
            Message<byte[]> message = consumer.receive(ARRIVES_S, TimeUnit.SECONDS);
            expect(message != null, "message " + number + " did not come");
            String text = new String(message.getData());
            expect(text.equals("message " + number), text + " came instead of " + number);
            messages.add(message);
        }
        return messages;
    }

    static void acknowledge(Consumer<byte[]> consumer, List<Message<byte[]>> messages) throws Exception {
        for (Message<byte[]> message : messages) {
            consumer.acknowledge(message);
        }
    }

    // Checks.

    /** A producer above the rate waits without an error, and goes on at once when the rate is removed. */
    void publishRate() throws Exception {
        Consumer<byte[]> consumer = consumer().subscribe();
        Producer<byte[]> producer = producer("p");
        publish(producer, 0, 1);
        set("publishRate", "{\"publishThrottlingRateInMsg\": 20}");
        publish(producer, 1, 30);
        expect(limitedTimes() > 0, "no message waited for its rate");
        remove("publishRate");
        int before = limitedTimes();
        publish(producer, 31, 300);
        expect(limitedTimes() == before, "messages wait for a rate that was removed");
        acknowledge(consumer, take(consumer, 0, 331));
    }

    void publishRateOfNamespace() throws Exception {
        String namespace = "public/rate-" + Long.toHexString(System.nanoTime());
        ask("PUT", "namespaces/" + namespace, "{}");
        topic = namespace + "/t";
        ask("POST", "namespaces/" + namespace + "/publishRate", "{\"publishThrottlingRateInMsg\": 20}");
        publish(producer("p"), 0, 30);
        expect(limitedTimes() > 0, "no message waited for the namespace's rate");
        set("publishRate", "{\"publishThrottlingRateInMsg\": 100000}");
        int before = limitedTimes();
        publish(producer("q"), 30, 300);
        expect(limitedTimes() == before, "the topic's rate does not win");
    }

    void maxProducers() throws Exception {
        Producer<byte[]> first = producer("first");
        set("maxProducers", 1);
        refused(PulsarClientException.ProducerBusyException.class, () -> producer("second"));
        publish(first, 0, 1);
        first.close();
        publish(producer("second"), 1, 1);
    }

    void maxConsumers(String word) throws Exception {
        Consumer<byte[]> first = consumer().subscribe();
        set(word, 1);
        refused(PulsarClientException.ConsumerBusyException.class, () -> consumer().subscribe());
        first.close();
        consumer().subscribe();
        remove(word);
        consumer().subscribe();
    }

    void maxSubscriptions() throws Exception {
        consumer().subscribe();
        set("maxSubscriptionsPerTopic", 1);
        refused(PulsarClientException.class, () -> consumer().subscriptionName("other").subscribe());
        consumer().subscribe();
        remove("maxSubscriptionsPerTopic");
        consumer().subscriptionName("other").subscribe();
    }

    /** A consumer gets no more than the limit until it has acknowledged some. */
    void maxUnacked(String word) throws Exception {
        publish(producer("p"), 0, 4 * LIMIT);
        set(word, LIMIT);
        // The limit of a subscription is looked at after each run of messages, as in Pulsar; the queue keeps a run short.
        Consumer<byte[]> consumer = consumer().receiverQueueSize(LIMIT).subscribe();
        List<Message<byte[]>> held = take(consumer, 0, LIMIT);
        Message<byte[]> more = consumer.receive(SILENCE_MS, TimeUnit.MILLISECONDS);
        expect(more == null, "a message above the limit came");
        acknowledge(consumer, held);
        for (int number = LIMIT; number < 4 * LIMIT; number++) {
            acknowledge(consumer, take(consumer, number, 1));
        }
    }

    void maxMessageSize() throws Exception {
        Producer<byte[]> producer = producer("p");
        set("maxMessageSize", 2000);
        producer.send(new byte[1000]);
        refused(PulsarClientException.NotAllowedException.class, () -> producer.send(new byte[3000]));
    }

    void subscriptionTypes() throws Exception {
        producer("p");
        set("subscriptionTypesEnabled", "[\"Exclusive\"]");
        refused(PulsarClientException.NotAllowedException.class, () -> consumer().subscribe());
        consumer().subscriptionType(SubscriptionType.Exclusive).subscribe();
    }

    /** Everything comes in the end, and a removed rate lets the rest come at once. */
    void dispatchRate() throws Exception {
        Consumer<byte[]> consumer = consumer().subscribe();
        set("dispatchRate", "{\"dispatchThrottlingRateInMsg\": 10, \"ratePeriodInSecond\": 3600}");
        publish(producer("p"), 0, 100);
        acknowledge(consumer, take(consumer, 0, 10));
        Message<byte[]> more = consumer.receive(SILENCE_MS, TimeUnit.MILLISECONDS);
        // A token comes every six minutes; the last run may exceed the rate by a message.
        expect(more == null, "a message above the rate came");
        remove("dispatchRate");
        acknowledge(consumer, take(consumer, 10, 90));
    }

    /** Pulsar counts by host, consumer name and consumer id; the first consumer of each client has the same id. */
    void subscribeRate() throws Exception {
        consumer().subscribe().close();
        set("subscribeRate", "{\"subscribeThrottlingRatePerConsumer\": 1, \"ratePeriodInSecond\": 3600}");
        first().close();
        refused(PulsarClientException.NotAllowedException.class, () -> first());
        remove("subscribeRate");
        first().close();
    }

    PulsarClient first() throws PulsarClientException {
        PulsarClient other = connect(pulsarUrl);
        try {
            other.newConsumer().topic(topic).subscriptionName("s").consumerName("c").subscribe();
        } catch (PulsarClientException refusal) {
            other.close();
            throw refusal;
        }
        return other;
    }
}
