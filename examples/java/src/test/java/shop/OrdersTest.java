package shop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.time.Duration;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.PulsarClientException.IncompatibleSchemaException;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionType;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

class OrdersTest {
  @RegisterExtension static final Magnetar broker = new Magnetar();

  public static class Order {
    public String id;
    public double amount;
  }

  public static class Bill {
    public int id;
  }

  private static PulsarClient client;

  @BeforeAll
  static void connect() throws PulsarClientException {
    client = PulsarClient.builder().serviceUrl(broker.pulsarUrl()).build();
  }

  // One client for all tests: closing one takes two seconds.
  @AfterAll
  static void disconnect() throws PulsarClientException {
    client.close();
  }

  private <T> Consumer<T> consumer(Schema<T> schema, String topic) throws PulsarClientException {
    return client
        .newConsumer(schema)
        .topic(broker.topic(topic))
        .subscriptionName("tests")
        .subscriptionType(SubscriptionType.Shared)
        .subscribe();
  }

  @Test
  void orderArrivesAsItWasSent() throws Exception {
    try (var consumer = consumer(Schema.STRING, "orders");
        var producer = client.newProducer(Schema.STRING).topic(broker.topic("orders")).create()) {
      producer.send("one coffee");
      var message = consumer.receive(30, TimeUnit.SECONDS);
      assertEquals("one coffee", message.getValue());
      consumer.acknowledge(message);
    }
  }

  @Test
  void jsonOrderIsReadAsAnObject() throws Exception {
    var schema = Schema.JSON(Order.class);
    try (var consumer = consumer(schema, "orders");
        var producer = client.newProducer(schema).topic(broker.topic("orders")).create()) {
      var order = new Order();
      order.id = "7";
      order.amount = 12.5;
      producer.send(order);
      assertEquals(12.5, consumer.receive(30, TimeUnit.SECONDS).getValue().amount);
    }
  }

  @Test
  void producerOfAnotherSchemaIsRefused() throws Exception {
    client.newProducer(Schema.JSON(Order.class)).topic(broker.topic("orders")).create().close();
    assertThrows(
        IncompatibleSchemaException.class,
        () -> client.newProducer(Schema.JSON(Bill.class)).topic(broker.topic("orders")).create());
  }

  @Test
  void reminderComesAfterAnHour() throws Exception {
    try (var consumer = consumer(Schema.STRING, "reminders");
        var producer = client.newProducer(Schema.STRING).topic(broker.topic("reminders")).create()) {
      producer.newMessage().value("not paid").deliverAfter(1, TimeUnit.HOURS).send();
      broker.advance(Duration.ofMinutes(59));
      assertNull(consumer.receive(200, TimeUnit.MILLISECONDS));
      broker.advance(Duration.ofMinutes(1));
      assertEquals("not paid", consumer.receive(30, TimeUnit.SECONDS).getValue());
    }
  }

  @Test
  void producerSurvivesALostReceipt() throws Exception {
    try (var consumer = consumer(Schema.STRING, "orders");
        var producer = client.newProducer(Schema.STRING).topic(broker.topic("orders")).create()) {
      int fault = broker.fault("{\"on\": \"SEND_RECEIPT\", \"do\": \"drop\"}");
      producer.send("one coffee");
      assertEquals(1, broker.fired(fault));
      assertEquals("one coffee", consumer.receive(30, TimeUnit.SECONDS).getValue());
    }
  }

  @Test
  void ordersExpireAfterAWeek() throws Exception {
    broker.ask("POST", "/admin/v2/namespaces/" + broker.namespace() + "/messageTTL", "604800");
    consumer(Schema.STRING, "orders").close();
    try (var producer = client.newProducer(Schema.STRING).topic(broker.topic("orders")).create()) {
      producer.send("one coffee");
    }
    assertEquals("1", backlog());
    broker.advance(Duration.ofDays(8));
    assertEquals("0", backlog());
  }

  private String backlog() throws Exception {
    var stats = broker.ask("GET", "/admin/v2/persistent/" + broker.namespace() + "/orders/stats", "");
    return Magnetar.value(stats, "msgBacklog");
  }
}
