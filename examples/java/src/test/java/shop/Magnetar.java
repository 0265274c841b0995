package shop;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.UUID;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.extension.AfterAllCallback;
import org.junit.jupiter.api.extension.BeforeAllCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;

/**
 * A broker for the tests of one class, as a JUnit extension; each test gets a namespace of its own.
 *
 * <p>The environment variable MAGNETAR names the command, by default {@code magnetar}. The broker keeps everything in
 * memory and ends with this process, because it reads its standard input until the end.
 */
public final class Magnetar implements BeforeAllCallback, BeforeEachCallback, AfterAllCallback {
  private static final Duration READY_WITHIN = Duration.ofSeconds(60);
  private final HttpClient http = HttpClient.newHttpClient();
  private Process process;
  private Path folder;
  private String addresses;
  private String namespace;

  @Override
  public void beforeAll(ExtensionContext context) throws IOException, InterruptedException {
    folder = Files.createTempDirectory("magnetar");
    Path ready = folder.resolve("ready.json");
    String command = System.getenv().getOrDefault("MAGNETAR", "magnetar");
    process =
        new ProcessBuilder(
                command, "standalone", "--memory", "--test-faults", "--until-eof",
                "--set", "brokerServicePort=0", "--set", "webServicePort=0",
                "--ready-file", ready.toString())
            .redirectErrorStream(true)
            .redirectOutput(folder.resolve("broker.log").toFile())
            .start();
    long deadline = System.nanoTime() + READY_WITHIN.toNanos();
    while (!Files.exists(ready)) {
      if (!process.isAlive() || System.nanoTime() > deadline) {
        throw new IOException("the broker did not start:\n" + Files.readString(folder.resolve("broker.log")));
      }
      Thread.sleep(5);
    }
    addresses = Files.readString(ready);
  }

  @Override
  public void beforeEach(ExtensionContext context) throws IOException, InterruptedException {
    namespace = "public/test-" + UUID.randomUUID();
    ask("PUT", "/admin/v2/namespaces/" + namespace, "{}");
  }

  @Override
  public void afterAll(ExtensionContext context) throws IOException, InterruptedException {
    process.getOutputStream().close();
    process.waitFor();
    Files.deleteIfExists(folder.resolve("ready.json"));
    Files.deleteIfExists(folder.resolve("broker.log"));
    Files.delete(folder);
  }

  /** The address for clients. */
  public String pulsarUrl() {
    return value(addresses, "pulsar");
  }

  /** The namespace of the test that runs. */
  public String namespace() {
    return namespace;
  }

  /** The full name of a topic in that namespace. */
  public String topic(String name) {
    return "persistent://" + namespace + "/" + name;
  }

  /** Moves the broker's clock ahead, and returns when everything has happened that fell due. */
  public void advance(Duration time) throws IOException, InterruptedException {
    ask("POST", "/magnetar/test/clock", "{\"advance_ms\": " + time.toMillis() + "}");
  }

  /** Sets a fault, such as {@code {"on": "ACK", "do": "drop"}}, and returns its id. */
  public int fault(String fault) throws IOException, InterruptedException {
    return Integer.parseInt(value(ask("POST", "/magnetar/test/faults", fault), "id"));
  }

  /** How often a fault has happened. */
  public int fired(int fault) throws IOException, InterruptedException {
    return Integer.parseInt(value(ask("DELETE", "/magnetar/test/faults/" + fault, ""), "fired"));
  }

  /** Sends a request to the admin port and returns the body. IOException for a refusal, with its reason. */
  public String ask(String method, String path, String body) throws IOException, InterruptedException {
    HttpRequest request =
        HttpRequest.newBuilder(URI.create(value(addresses, "admin") + path))
            .header("Content-Type", "application/json")
            .method(method, body.isEmpty() ? BodyPublishers.noBody() : BodyPublishers.ofString(body))
            .build();
    var answer = http.send(request, BodyHandlers.ofString());
    if (answer.statusCode() >= 300) {
      throw new IOException(method + " " + path + ": " + answer.statusCode() + " " + answer.body());
    }
    return answer.body();
  }

  /** Returns the first value of this name in a JSON text. */
  public static String value(String json, String name) {
    Matcher found = Pattern.compile("\"" + name + "\":\\s*\"?([^\",}]+)").matcher(json);
    if (!found.find()) {
      throw new IllegalArgumentException("no " + name + " in " + json);
    }
    return found.group(1);
  }
}
