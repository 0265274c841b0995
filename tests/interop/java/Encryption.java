import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.apache.pulsar.client.api.CryptoKeyReader;
import org.apache.pulsar.client.api.EncryptionKeyInfo;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;

/** Publishes encrypted messages: URL, topic, key name, file of the public key, number of messages. */
public class Encryption {
    public static void main(String[] words) throws Exception {
        byte[] pem = Files.readAllBytes(Path.of(words[3]));
        CryptoKeyReader reader = new CryptoKeyReader() {
            @Override
            public EncryptionKeyInfo getPublicKey(String name, Map<String, String> metadata) {
                return new EncryptionKeyInfo(pem, metadata);
            }

            @Override
            public EncryptionKeyInfo getPrivateKey(String name, Map<String, String> metadata) {
                throw new IllegalStateException("a producer needs no private key");
            }
        };
        try (PulsarClient client = PulsarClient.builder().serviceUrl(words[0]).build();
                Producer<byte[]> producer = client.newProducer().topic(words[1]).addEncryptionKey(words[2])
                        .cryptoKeyReader(reader).create()) {
            for (int number = 0; number < Integer.parseInt(words[4]); number++) {
                producer.sendAsync(("secret " + number).getBytes());
            }
            producer.flush();
        }
    }
}
