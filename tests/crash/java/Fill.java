import java.util.Locale;
import java.util.Random;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;

/** The same as `fill_process.py` with the official Java client: `java Fill.java URL TOPIC BYTES BATCHED`. */
public final class Fill {
    private static final int WINDOW = 200;
    private static final int SEND_TIMEOUT_S = 5;

    public static void main(String[] arguments) throws Exception {
        PulsarClient client = PulsarClient.builder().serviceUrl(arguments[0]).build();
        Producer<byte[]> producer = client.newProducer()
                .topic(arguments[1])
                .enableBatching(arguments[3].equals("batched"))
                .sendTimeout(SEND_TIMEOUT_S, TimeUnit.SECONDS)
                .create();
        byte[] payload = new byte[Integer.parseInt(arguments[2])];
        new Random(0).nextBytes(payload);
        Semaphore window = new Semaphore(WINDOW);
        AtomicBoolean refused = new AtomicBoolean();
        for (int number = 0;; number++) {
            window.acquire();
            byte[] body = new byte[8 + payload.length];
            System.arraycopy(String.format(Locale.ROOT, "%08d", number).getBytes(), 0, body, 0, 8);
            System.arraycopy(payload, 0, body, 8, payload.length);
            int sent = number;
            producer.sendAsync(body).whenComplete((id, error) -> {
                window.release();
                if (error == null) {
                    refused.set(false);
                    System.out.println(sent);
                } else if (!refused.getAndSet(true)) {
                    System.out.println("refused " + error.getClass().getSimpleName());
                }
            });
        }
    }
}
