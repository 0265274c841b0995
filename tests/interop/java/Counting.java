import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.apache.pulsar.client.api.BatcherBuilder;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.MessageIdAdv;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionType;

/** The official Java client as a program of `counting.py`, which says what it prints: `java Counting.java URL PREFIX RATE`. */
public final class Counting {
    static final int KEYS = 20;
    static final List<String> TOPICS = List.of("single", "batched");

    static volatile boolean stopping;

    public static void main(String[] arguments) throws Exception {
        PulsarClient client =
                PulsarClient.builder().serviceUrl(arguments[0]).operationTimeout(60, TimeUnit.SECONDS).build();
        List<Producer<String>> producers = new ArrayList<>();
        for (String topic : TOPICS) {
            receive(client, arguments[1], topic, "alone", SubscriptionType.Exclusive);
            receive(client, arguments[1], topic, "keys", SubscriptionType.Key_Shared);
            receive(client, arguments[1], topic, "keys", SubscriptionType.Key_Shared);
            producers.add(client.newProducer(Schema.STRING).topic(arguments[1] + topic).sendTimeout(0, TimeUnit.SECONDS)
                    .blockIfQueueFull(true).enableBatching(topic.equals("batched")).batcherBuilder(BatcherBuilder.KEY_BASED)
                    .batchingMaxPublishDelay(100, TimeUnit.MILLISECONDS).create());
        }
        say("ready");
        List<Thread> senders = new ArrayList<>();
        for (int place = 0; place < TOPICS.size(); place++) {
            Producer<String> producer = producers.get(place);
            String topic = TOPICS.get(place);
            long pauseNs = (long) (1e9 * TOPICS.size() / Double.parseDouble(arguments[2]));
            senders.add(start(() -> send(producer, topic, pauseNs)));
        }
        System.in.read();
        stopping = true;
        for (Thread sender : senders) {
            sender.join();
        }
        say("stopped");
        while (System.in.read() >= 0) {
        }
        Runtime.getRuntime().halt(0);
    }

    static synchronized void say(String line) {
        System.out.println(line);
    }

    static Thread start(Runnable work) {
        Thread thread = new Thread(work);
        thread.start();
        return thread;
    }

    static String position(MessageId of) {
        MessageIdAdv id = (MessageIdAdv) of;
        return id.getLedgerId() + ":" + id.getEntryId() + ":" + Math.max(0, id.getBatchIndex());
    }

    static void send(Producer<String> producer, String topic, long pauseNs) {
        long dueNs = System.nanoTime();
        for (int number = 0; !stopping; number++) {
            String key = String.valueOf(number % KEYS);
            String name = topic + " " + key + " " + number;
            say("sent " + name);
            producer.newMessage().key(key).value(String.valueOf(number)).sendAsync().whenComplete((id, failure) ->
                    say(failure == null ? "confirmed " + name + " " + position(id) : "failed " + name + " " + failure));
            dueNs += pauseNs;
            LockSupport.parkNanos(dueNs - System.nanoTime());
        }
    }

    static void receive(PulsarClient client, String prefix, String topic, String subscription, SubscriptionType kind)
            throws PulsarClientException {
        Consumer<String> consumer = client.newConsumer(Schema.STRING).topic(prefix + topic).subscriptionName(subscription)
                .subscriptionType(kind).subscribe();
        start(() -> {
            try {
                while (true) {
                    Message<String> message = consumer.receive();
                    say("received " + subscription + " " + topic + " " + message.getKey() + " " + message.getValue() + " "
                            + position(message.getMessageId()));
                    consumer.acknowledgeAsync(message);
                }
            } catch (PulsarClientException failure) {
                say("trouble " + subscription + " " + topic + " " + failure);
            }
        });
    }
}
