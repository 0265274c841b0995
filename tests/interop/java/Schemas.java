import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.sql.Time;
import java.sql.Timestamp;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.util.Date;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.schema.GenericRecord;
import org.apache.pulsar.client.api.schema.SchemaDefinition;
import org.apache.pulsar.common.schema.KeyValue;
import org.apache.pulsar.common.schema.KeyValueEncodingType;

/**
 * Schemas with the official Java client: `java Schemas.java PULSAR_URL ADMIN_URL [CHECK...]` runs the checks, each on topics of
 * its own, and prints a line for each: `ok NAME` or `failed NAME: REASON`. It exits 0 when all were run.
 */
public final class Schemas {
    interface Check {
        void run(PulsarClient client, String topic) throws Exception;
    }

    interface Attempt {
        void run() throws Exception;
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

    public static final class Other {
        public boolean flag;
    }

    static final int ARRIVES_S = 60;
    static final Map<String, Check> CHECKS = new LinkedHashMap<>();

    static {
        CHECKS.put("avro_evolution", (client, topic) -> evolution(client, topic, avro(First.class), avro(Second.class)));
        CHECKS.put("json_evolution", (client, topic) -> evolution(client, topic, json(First.class), json(Second.class)));
        CHECKS.put("refusals", Schemas::refusals);
        CHECKS.put("auto_consume", Schemas::autoConsume);
        CHECKS.put("auto_consume_without_a_schema", Schemas::autoConsumeWithoutSchema);
        CHECKS.put("auto_produce", Schemas::autoProduce);
        CHECKS.put("schema_of_a_message", Schemas::schemaOfMessage);
        CHECKS.put("key_value_inline", (client, topic) -> keyValue(client, topic, KeyValueEncodingType.INLINE));
        CHECKS.put("key_value_separated", (client, topic) -> keyValue(client, topic, KeyValueEncodingType.SEPARATED));
        CHECKS.put("primitives", Schemas::primitives);
        CHECKS.put("bytes_on_a_topic_with_a_schema", Schemas::bytes);
        CHECKS.put("partitions", Schemas::partitions);
        CHECKS.put("dead_letter_schema", Schemas::deadLetter);
    }

    /** Base URL of the admin API. */
    private static String adminUrl;

    public static void main(String[] arguments) throws Exception {
        adminUrl = arguments[1];
        long run = System.nanoTime();
        List<String> wanted = List.of(arguments).subList(2, arguments.length);
        for (Map.Entry<String, Check> check : CHECKS.entrySet()) {
            if (!wanted.isEmpty() && !wanted.contains(check.getKey())) {
                continue;
            }
            String topic = "persistent://public/default/java-" + Long.toHexString(run) + "-" + check.getKey();
            PulsarClient client = PulsarClient.builder()
                    .serviceUrl(arguments[0])
                    .operationTimeout(ARRIVES_S, TimeUnit.SECONDS)
                    .build();
            try {
                check.getValue().run(client, topic);
                System.out.println("ok " + check.getKey());
            } catch (Exception | AssertionError failure) {
                String reason = String.valueOf(failure).replace('\n', ' ');
                System.out.println("failed " + check.getKey() + ": " + reason);
            }
            client.closeAsync();
        }
        Runtime.getRuntime().halt(0);
    }

    static <T> Schema<T> avro(Class<T> type) {
        return Schema.AVRO(SchemaDefinition.<T>builder().withPojo(type).build());
    }

    static <T> Schema<T> json(Class<T> type) {
        return Schema.JSON(SchemaDefinition.<T>builder().withPojo(type).build());
    }

    static <T> Consumer<T> consumer(PulsarClient client, String topic, Schema<T> schema, String name)
            throws PulsarClientException {
        return client.newConsumer(schema)
                .topic(topic)
                .subscriptionName(name)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .subscribe();
    }

    static <T> void send(PulsarClient client, String topic, Schema<T> schema, T value) throws PulsarClientException {
        try (Producer<T> producer = client.newProducer(schema).topic(topic).create()) {
            producer.send(value);
        }
    }

    static <T> Message<T> next(Consumer<T> consumer) throws PulsarClientException {
        Message<T> message = consumer.receive(ARRIVES_S, TimeUnit.SECONDS);
        expect(message != null, "no message came");
        return message;
    }

    static int version(Message<?> message) {
        byte[] version = message.getSchemaVersion();
        expect(version != null && version.length == 8, "a version of eight bytes is expected");
        return version[7];
    }

    static void expect(boolean good, String reason) {
        if (!good) {
            throw new AssertionError(reason);
        }
    }

    static void refused(Attempt attempt) throws Exception {
        try {
            attempt.run();
        } catch (PulsarClientException.IncompatibleSchemaException expected) {
            return;
        }
        throw new AssertionError("an incompatible schema was accepted");
    }

    static First first(int number) {
        First value = new First();
        value.number = number;
        return value;
    }

    static Second second(int number, String note) {
        Second value = new Second();
        value.number = number;
        value.note = note;
        return value;
    }

    // Checks.

    static void evolution(PulsarClient client, String topic, Schema<First> older, Schema<Second> newer) throws Exception {
        send(client, topic, older, first(1));
        send(client, topic, newer, second(2, "n"));
        send(client, topic, older, first(3));
        Consumer<First> reads = consumer(client, topic, older, "first");
        Consumer<Second> also = consumer(client, topic, newer, "second");
        for (int number = 1; number <= 3; number++) {
            Message<First> message = next(reads);
            expect(message.getValue().number == number, "another message");
            expect(version(message) == (number == 2 ? 1 : 0), "version " + version(message));
            Second value = next(also).getValue();
            expect(value.number == number, "another message");
            expect((number == 2) == "n".equals(value.note), "note " + value.note);
        }
    }

    static void refusals(PulsarClient client, String topic) throws Exception {
        send(client, topic, avro(First.class), first(1));
        refused(() -> send(client, topic, avro(Demanding.class), new Demanding()));
        refused(() -> send(client, topic, json(First.class), first(1)));
        refused(() -> send(client, topic, Schema.STRING, "x"));
        refused(() -> consumer(client, topic, avro(Demanding.class), "s"));
        refused(() -> consumer(client, topic, Schema.INT32, "s"));
        expect(next(consumer(client, topic, avro(First.class), "s")).getValue().number == 1, "another message");
    }

    static void autoConsume(PulsarClient client, String topic) throws Exception {
        Consumer<GenericRecord> early = consumer(client, topic, Schema.AUTO_CONSUME(), "early");
        send(client, topic, avro(First.class), first(1));
        send(client, topic, avro(Second.class), second(2, "n"));
        Consumer<GenericRecord> late = consumer(client, topic, Schema.AUTO_CONSUME(), "late");
        for (Consumer<GenericRecord> reads : List.of(early, late)) {
            GenericRecord old = next(reads).getValue();
            expect(old.getFields().size() == 1 && old.getField("number").equals(1), "first " + old.getFields());
            GenericRecord grown = next(reads).getValue();
            expect(grown.getField("number").equals(2), "number " + grown.getField("number"));
            expect(grown.getField("note").toString().equals("n"), "note " + grown.getField("note"));
        }
    }

    static void autoConsumeWithoutSchema(PulsarClient client, String topic) throws Exception {
        Consumer<GenericRecord> reads = consumer(client, topic, Schema.AUTO_CONSUME(), "s");
        send(client, topic, Schema.BYTES, "plain".getBytes());
        expect(new String(next(reads).getData()).equals("plain"), "another message");
    }

    static void autoProduce(PulsarClient client, String topic) throws Exception {
        Consumer<Second> reads = consumer(client, topic, avro(Second.class), "s");
        byte[] encoded = avro(Second.class).encode(second(4, "n"));
        send(client, topic, Schema.AUTO_PRODUCE_BYTES(), encoded);
        Message<Second> message = next(reads);
        expect(message.getValue().number == 4 && version(message) == 0, "another message");
    }

    static void schemaOfMessage(PulsarClient client, String topic) throws Exception {
        Consumer<GenericRecord> reads = consumer(client, topic, Schema.AUTO_CONSUME(), "s");
        try (Producer<First> producer = client.newProducer(avro(First.class)).topic(topic).create()) {
            producer.send(first(1));
            producer.newMessage(avro(Second.class)).value(second(2, "n")).send();
            producer.send(first(3));
            refused(() -> producer.newMessage(avro(Demanding.class)).value(new Demanding()).send());
        }
        int[] versions = {0, 1, 0};
        for (int expected : versions) {
            Message<GenericRecord> message = next(reads);
            expect(version(message) == expected, "version " + version(message));
        }
    }

    static void keyValue(PulsarClient client, String topic, KeyValueEncodingType encoding) throws Exception {
        Schema<KeyValue<First, First>> older = Schema.KeyValue(avro(First.class), json(First.class), encoding);
        Schema<KeyValue<First, Second>> newer = Schema.KeyValue(avro(First.class), json(Second.class), encoding);
        Schema<KeyValue<First, Other>> other = Schema.KeyValue(avro(First.class), avro(Other.class), encoding);
        Consumer<KeyValue<First, Second>> reads = consumer(client, topic, newer, "s");
        Consumer<GenericRecord> any = consumer(client, topic, Schema.AUTO_CONSUME(), "any");
        send(client, topic, newer, new KeyValue<>(first(1), second(2, "n")));
        send(client, topic, older, new KeyValue<>(first(3), first(4)));
        refused(() -> send(client, topic, other, new KeyValue<>(first(1), new Other())));
        Message<KeyValue<First, Second>> message = next(reads);
        expect(message.getValue().getKey().number == 1 && message.getValue().getValue().note.equals("n"), "another pair");
        message = next(reads);
        expect(message.getValue().getKey().number == 3 && message.getValue().getValue().number == 4, "another pair");
        expect(version(message) == 1, "version " + version(message));
        expect(next(any).getValue().getNativeObject() instanceof KeyValue, "AUTO_CONSUME gives pairs");
    }

    static void primitives(PulsarClient client, String topic) throws Exception {
        primitive(client, topic, Schema.STRING, "text");
        primitive(client, topic, Schema.BOOL, true);
        primitive(client, topic, Schema.INT8, (byte) 1);
        primitive(client, topic, Schema.INT16, (short) 2);
        primitive(client, topic, Schema.INT32, 3);
        primitive(client, topic, Schema.INT64, 4L);
        primitive(client, topic, Schema.FLOAT, 5f);
        primitive(client, topic, Schema.DOUBLE, 6d);
        primitive(client, topic, Schema.DATE, new Date(7));
        primitive(client, topic, Schema.TIME, new Time(8));
        primitive(client, topic, Schema.TIMESTAMP, new Timestamp(9));
        primitive(client, topic, Schema.INSTANT, Instant.ofEpochSecond(10));
        primitive(client, topic, Schema.LOCAL_DATE, LocalDate.of(2026, 11, 22));
        primitive(client, topic, Schema.LOCAL_TIME, LocalTime.of(1, 2));
        primitive(client, topic, Schema.LOCAL_DATE_TIME, LocalDateTime.of(2026, 11, 22, 1, 2));
    }

    static <T> void primitive(PulsarClient client, String topic, Schema<T> schema, T value) throws Exception {
        String own = topic + "-" + schema.getSchemaInfo().getType();
        Consumer<T> reads = consumer(client, own, schema, "s");
        Consumer<GenericRecord> any = consumer(client, own, Schema.AUTO_CONSUME(), "any");
        send(client, own, schema, value);
        Message<T> message = next(reads);
        expect(message.getValue().equals(value) && version(message) == 0, own + ": " + message.getValue());
        expect(next(any).getValue().getNativeObject().equals(value), own + ": AUTO_CONSUME differs");
        refused(() -> send(client, own, avro(First.class), first(1)));
    }

    static void bytes(PulsarClient client, String topic) throws Exception {
        send(client, topic, avro(First.class), first(1));
        send(client, topic, Schema.BYTES, avro(First.class).encode(first(2)));
        Consumer<byte[]> raw = consumer(client, topic, Schema.BYTES, "raw");
        expect(next(raw).getData().length == next(raw).getData().length, "two of one length");
    }

    static void partitions(PulsarClient client, String topic) throws Exception {
        String path = "/admin/v2/" + topic.replace("://", "/") + "/partitions";
        HttpRequest create = HttpRequest.newBuilder(URI.create(adminUrl + path))
                .header("Content-Type", "application/json")
                .method("PUT", HttpRequest.BodyPublishers.ofString("2"))
                .build();
        int status = HttpClient.newHttpClient().send(create, HttpResponse.BodyHandlers.discarding()).statusCode();
        expect(status == 204, "the topic was not created: " + status);
        Schema<Second> schema = avro(Second.class);
        send(client, topic + "-partition-0", schema, second(1, "n"));
        refused(() -> send(client, topic + "-partition-1", avro(Demanding.class), new Demanding()));
    }

    /** The client opens the dead-letter topic with the schema of each message. */
    static void deadLetter(PulsarClient client, String topic) throws Exception {
        Consumer<First> reads = client.newConsumer(avro(First.class))
                .topic(topic)
                .subscriptionName("s")
                .subscriptionType(org.apache.pulsar.client.api.SubscriptionType.Shared)
                .negativeAckRedeliveryDelay(10, TimeUnit.MILLISECONDS)
                .deadLetterPolicy(org.apache.pulsar.client.api.DeadLetterPolicy.builder()
                        .maxRedeliverCount(1)
                        .deadLetterTopic(topic + "-DLQ")
                        .initialSubscriptionName("kept")
                        .build())
                .subscribe();
        send(client, topic, avro(First.class), first(5));
        reads.negativeAcknowledge(next(reads));
        reads.negativeAcknowledge(next(reads));
        // A reader of the topic's messages asks for them until the client has passed the last one on.
        reads.receiveAsync();
        Message<First> dead = next(consumer(client, topic + "-DLQ", avro(First.class), "kept"));
        expect(dead.getValue().number == 5 && version(dead) == 0, "another message");
    }
}
