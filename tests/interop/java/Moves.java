import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.transaction.Transaction;

/**
 * Moves batched messages from one topic to others in transactions: `java Moves.java PULSAR_URL INPUT OUTPUT[,OUTPUT…] COUNT`. Three
 * workers share a subscription and acknowledge single messages of batches; every fifth transaction is aborted. Each message goes to
 * all outputs. Prints `commit` for each commit. Once the outputs have every message it prints
 * `ended COMMITS ABORTS FAILURES MISSING TWICE`: MISSING and TWICE are numbers of messages that an output has never, and more than
 * once.
 */
public final class Moves {
    static final int WORKERS = 3;
    static final int BATCH = 10;
    static final int MOVED_MAX = 7;
    static final int WAIT_S = 60;
    static final int TRANSACTION_S = 20;
    static final String END = "end";

    final String url;
    final String input;
    final String[] outputs;
    final AtomicBoolean stopping = new AtomicBoolean();
    final AtomicInteger commits = new AtomicInteger();
    final AtomicInteger aborts = new AtomicInteger();
    final AtomicInteger failures = new AtomicInteger();

    Moves(String url, String input, String[] outputs) {
        this.url = url;
        this.input = input;
        this.outputs = outputs;
    }

    public static void main(String[] arguments) throws Exception {
        new Moves(arguments[0], arguments[1], arguments[2].split(",")).run(Integer.parseInt(arguments[3]));
        Runtime.getRuntime().halt(0);
    }

    PulsarClient client() throws PulsarClientException {
        return PulsarClient.builder().serviceUrl(url).enableTransaction(true).operationTimeout(15, TimeUnit.SECONDS).build();
    }

    void run(int count) throws Exception {
        PulsarClient client = client();
        publish(client, count);
        List<Reader<String>> readers = new ArrayList<>();
        for (String output : outputs) {
            readers.add(client.newReader(Schema.STRING).topic(output).startMessageId(MessageId.earliest).create());
        }
        List<Thread> workers = new ArrayList<>();
        for (int number = 0; number < WORKERS; number++) {
            Worker worker = new Worker(client(), number);
            workers.add(new Thread(worker::work));
            workers.get(number).start();
        }
        List<Map<String, Integer>> moved = new ArrayList<>();
        for (Reader<String> reader : readers) {
            Map<String, Integer> found = new HashMap<>();
            while (found.size() < count) {
                found.merge(next(reader), 1, Integer::sum);
            }
            moved.add(found);
        }
        stopping.set(true);
        for (Thread worker : workers) {
            worker.join();
        }
        long missing = 0;
        long twice = 0;
        for (int place = 0; place < outputs.length; place++) {
            Map<String, Integer> found = moved.get(place);
            // A message outside of transactions waits for the end of those that began before it.
            client.newProducer(Schema.STRING).topic(outputs[place]).create().send(END);
            for (String value; !(value = next(readers.get(place))).equals(END);) {
                found.merge(value, 1, Integer::sum);
            }
            twice += found.values().stream().filter(times -> times > 1).count();
            for (int number = 0; number < count; number++) {
                missing += found.containsKey("message " + number) ? 0 : 1;
            }
        }
        System.out.println("ended " + commits + " " + aborts + " " + failures + " " + missing + " " + twice);
    }

    void publish(PulsarClient client, int count) throws Exception {
        client.newConsumer(Schema.STRING).topic(input).subscriptionName("workers").subscriptionType(SubscriptionType.Shared)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe().close();
        Producer<String> producer = client.newProducer(Schema.STRING).topic(input).batchingMaxMessages(BATCH)
                .batchingMaxPublishDelay(1, TimeUnit.SECONDS).create();
        List<CompletableFuture<?>> sends = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            sends.add(producer.newMessage().value("message " + number).sendAsync());
        }
        producer.flush();
        wait(sends);
        producer.close();
    }

    static String next(Reader<String> reader) throws Exception {
        Message<String> message = reader.readNext(WAIT_S, TimeUnit.SECONDS);
        if (message == null) {
            throw new AssertionError("the output stands still");
        }
        return message.getValue();
    }

    static void wait(List<CompletableFuture<?>> all) throws Exception {
        CompletableFuture.allOf(all.toArray(new CompletableFuture<?>[0])).get(WAIT_S, TimeUnit.SECONDS);
    }

    final class Worker {
        final PulsarClient client;
        final Random lot;
        final Consumer<String> consumer;
        final List<Producer<String>> producers = new ArrayList<>();

        Worker(PulsarClient client, int seed) throws PulsarClientException {
            this.client = client;
            lot = new Random(seed);
            consumer = client.newConsumer(Schema.STRING).topic(input).subscriptionName("workers")
                    .subscriptionType(SubscriptionType.Shared).receiverQueueSize(2 * BATCH)
                    .enableBatchIndexAcknowledgment(true).negativeAckRedeliveryDelay(100, TimeUnit.MILLISECONDS).subscribe();
            for (String output : outputs) {
                producers.add(client.newProducer(Schema.STRING).topic(output).sendTimeout(0, TimeUnit.SECONDS).create());
            }
        }

        void work() {
            for (int turn = 0; !stopping.get();) {
                try {
                    turn += move(turn % 5 == 4) ? 1 : 0;
                } catch (Exception failure) { // The broker is away, or another transaction has acknowledged a message.
                    failures.incrementAndGet();
                }
            }
        }

        /** False where no message came. A failed transaction gives its messages back. */
        boolean move(boolean abort) throws Exception {
            List<Message<String>> taken = take();
            if (taken.isEmpty()) {
                return false;
            }
            Transaction transaction = null;
            try {
                transaction = client.newTransaction().withTransactionTimeout(TRANSACTION_S, TimeUnit.SECONDS).build()
                        .get(WAIT_S, TimeUnit.SECONDS);
                List<CompletableFuture<?>> pending = new ArrayList<>();
                for (Message<String> message : taken) {
                    for (Producer<String> producer : producers) {
                        pending.add(producer.newMessage(transaction).value(message.getValue()).sendAsync());
                    }
                    pending.add(consumer.acknowledgeAsync(message.getMessageId(), transaction));
                }
                Moves.wait(pending);
                if (abort) {
                    transaction.abort().get(WAIT_S, TimeUnit.SECONDS);
                    aborts.incrementAndGet();
                } else {
                    transaction.commit().get(WAIT_S, TimeUnit.SECONDS);
                    commits.incrementAndGet();
                    System.out.println("commit");
                }
            } catch (Exception failure) {
                if (transaction != null) {
                    transaction.abort().exceptionally(ended -> null).get(WAIT_S, TimeUnit.SECONDS);
                }
                taken.forEach(consumer::negativeAcknowledge);
                throw failure;
            }
            return true;
        }

        List<Message<String>> take() throws PulsarClientException {
            List<Message<String>> taken = new ArrayList<>();
            for (int left = 1 + lot.nextInt(MOVED_MAX); left > 0; left--) {
                Message<String> message = consumer.receive(50, TimeUnit.MILLISECONDS);
                if (message == null) {
                    break;
                }
                taken.add(message);
            }
            return taken;
        }
    }
}
