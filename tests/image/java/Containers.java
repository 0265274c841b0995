import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.transaction.Transaction;
import org.testcontainers.containers.Container.ExecResult;
import org.testcontainers.containers.ContainerLaunchException;
import org.testcontainers.containers.output.ToStringConsumer;
import org.testcontainers.pulsar.PulsarContainer;
import org.testcontainers.utility.DockerImageName;

/**
 * The Pulsar module of testcontainers on an image: `java Containers.java IMAGE` runs the checks, each in a container of
 * its own, and prints a line for each: `ok NAME` or `failed NAME: REASON`. It exits 0 when all were run.
 */
public final class Containers {
    interface Check {
        void run(PulsarContainer container, ToStringConsumer log) throws Exception;
    }

    static final Map<String, Check> CHECKS = new LinkedHashMap<>();

    static {
        CHECKS.put("messages", (container, log) -> {
            container.start();
            sendAndReceive(container, "t");
        });
        CHECKS.put("environment", Containers::environment);
        CHECKS.put("transactions", Containers::transactions);
        CHECKS.put("programs", Containers::programs);
        CHECKS.put("functions_worker", Containers::functionsWorker);
    }

    static void environment(PulsarContainer container, ToStringConsumer log) throws Exception {
        container.withEnv("PULSAR_PREFIX_clusterName", "other").withEnv("PULSAR_PREFIX_maxMessageSize", "70000");
        container.withEnv("PULSAR_MEM", "-Xms512m -Xmx512m").start();
        String url = container.getHttpServiceUrl() + "/admin/v2/brokers/configuration/runtime";
        HttpResponse<String> answer = HttpClient.newHttpClient()
            .send(HttpRequest.newBuilder(URI.create(url)).build(), HttpResponse.BodyHandlers.ofString());
        require(answer.body().replace(" ", "").contains("\"maxMessageSize\":\"70000\""), "another maxMessageSize");
        require(log.toUtf8String().contains("accepted without effect: PULSAR_MEM"), "no line about PULSAR_MEM");
        sendAndReceive(container, "t");
    }

    static void transactions(PulsarContainer container, ToStringConsumer log) throws Exception {
        container.withTransactions().start();
        try (PulsarClient client = PulsarClient.builder().serviceUrl(container.getPulsarBrokerUrl())
                .enableTransaction(true).build();
                Consumer<byte[]> consumer = client.newConsumer().topic("t").subscriptionName("s").subscribe();
                Producer<byte[]> producer = client.newProducer().topic("t").sendTimeout(0, TimeUnit.SECONDS).create()) {
            Transaction aborted = client.newTransaction().withTransactionTimeout(1, TimeUnit.MINUTES).build().get();
            producer.newMessage(aborted).value("aborted".getBytes()).send();
            aborted.abort().get();
            Transaction committed = client.newTransaction().withTransactionTimeout(1, TimeUnit.MINUTES).build().get();
            producer.newMessage(committed).value("committed".getBytes()).send();
            committed.commit().get();
            Message<byte[]> message = consumer.receive(60, TimeUnit.SECONDS);
            require(message != null && "committed".equals(new String(message.getData())), "another message");
        }
    }

    static void programs(PulsarContainer container, ToStringConsumer log) throws Exception {
        container.start();
        require(exec(container, "/pulsar/bin/pulsar-admin", "namespaces", "list", "public").contains("public/default"),
            "pulsar-admin does not list public/default");
        exec(container, "bin/pulsar-admin", "topics", "create-partitioned-topic", "-p", "3", "public/default/p");
        require(exec(container, "bin/pulsar-admin", "topics", "get-partitioned-topic-metadata", "public/default/p")
            .contains("3"), "no three partitions");
        exec(container, "bin/pulsar-client", "--url", "pulsar://localhost:6650", "produce", "c", "-m", "by hand");
        require(exec(container, "bin/pulsar-client", "consume", "c", "-s", "s", "-n", "1", "-p", "Earliest")
            .contains("by hand"), "pulsar-client did not receive its message");
        exec(container, "bash", "-c", "test -d /pulsar/conf && test -w /pulsar/data && test -w /pulsar/logs");
    }

    static void functionsWorker(PulsarContainer container, ToStringConsumer log) {
        container.withFunctionsWorker().withStartupTimeout(Duration.ofSeconds(10));
        try {
            container.start();
        } catch (ContainerLaunchException expected) {
            require(log.toUtf8String().contains("the functions worker is not enabled"), "the log does not say why");
            return;
        }
        throw new AssertionError("the container started with a functions worker");
    }

    static void sendAndReceive(PulsarContainer container, String topic) throws Exception {
        try (PulsarClient client = PulsarClient.builder().serviceUrl(container.getPulsarBrokerUrl()).build();
                Producer<byte[]> producer = client.newProducer().topic(topic).create();
                Consumer<byte[]> consumer = client.newConsumer().topic(topic).subscriptionName("s")
                    .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe()) {
            producer.send("hello".getBytes());
            Message<byte[]> message = consumer.receive(60, TimeUnit.SECONDS);
            require(message != null && "hello".equals(new String(message.getData())), "another message");
            consumer.acknowledge(message);
        }
    }

    static String exec(PulsarContainer container, String... words) throws Exception {
        ExecResult ended = container.execInContainer(words);
        require(ended.getExitCode() == 0, String.join(" ", words) + " -> " + ended.getExitCode() + " " + ended.getStderr());
        return ended.getStdout();
    }

    static void require(boolean condition, String otherwise) {
        if (!condition) {
            throw new AssertionError(otherwise);
        }
    }

    public static void main(String[] words) {
        DockerImageName image = DockerImageName.parse(words[0]).asCompatibleSubstituteFor("apachepulsar/pulsar");
        for (Map.Entry<String, Check> check : CHECKS.entrySet()) {
            ToStringConsumer log = new ToStringConsumer();
            try (PulsarContainer container = new PulsarContainer(image).withLogConsumer(log)) {
                long before = System.nanoTime();
                check.getValue().run(container, log);
                System.err.println(check.getKey() + " " + (System.nanoTime() - before) / 1_000_000 + " ms");
                System.out.println("ok " + check.getKey());
            } catch (Throwable error) {
                System.out.println("failed " + check.getKey() + ": " + String.valueOf(error).replace('\n', ' '));
            }
        }
        System.exit(0);
    }
}
