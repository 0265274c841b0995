package org.apache.pulsar.client.impl;

import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Queue;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.impl.conf.ConsumerConfigurationData;
import org.apache.pulsar.common.api.proto.CommandMessage;
import org.apache.pulsar.common.protocol.Commands;
import org.apache.pulsar.shade.io.netty.buffer.ByteBuf;

/**
 * The fields of one's own in the broker entry metadata, in the official Java client: `java OwnFields PULSAR_URL TOPIC` prints
 * a line for each of three messages: `INDEX PAYLOAD PUBLISH_TIME_IS_SET FIELD=TEXT ...`.
 *
 * The client's API shows Pulsar's two fields alone, so the consumer is the client's own with one method overridden, as
 * Pulsar's RawReader does it: it looks at the block in front of the message before the client takes that off. A method
 * without a modifier is overridden, so the class stands in the client's package and has to be compiled.
 */
public final class OwnFields extends ConsumerImpl<byte[]> {
    static final int MESSAGES = 3;
    static final int ARRIVES_S = 60;
    static final int HEAD = 6;

    final Queue<Map<Integer, String>> fields = new ConcurrentLinkedQueue<>();

    OwnFields(PulsarClientImpl client, ConsumerConfigurationData<byte[]> conf, CompletableFuture<Consumer<byte[]>> ready) {
        super(client, conf.getSingleTopic(), conf, client.externalExecutorProvider(), -1, false, false, ready,
                MessageId.earliest, 0, Schema.BYTES, null, true);
    }

    @Override
    void messageReceived(CommandMessage command, ByteBuf frame, ClientCnx connection) {
        int start = frame.readerIndex();
        Map<Integer, String> found = new TreeMap<>();
        if (frame.getShort(start) == Commands.magicBrokerEntryMetadata) {
            ByteBuf block = frame.slice(start + HEAD, frame.getInt(start + 2));
            while (block.isReadable()) {
                long tag = varint(block);
                long value = varint(block);
                if ((tag & 7) == 2) {
                    found.put((int) (tag >> 3), block.readCharSequence((int) value, StandardCharsets.UTF_8).toString());
                } else {
                    found.put((int) (tag >> 3), Long.toString(value));
                }
            }
        }
        fields.add(found);
        super.messageReceived(command, frame, connection);
    }

    static long varint(ByteBuf block) {
        long value = 0;
        for (int shift = 0; ; shift += 7) {
            byte next = block.readByte();
            value |= (long) (next & 0x7f) << shift;
            if (next >= 0) {
                return value;
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        try (PulsarClientImpl client = (PulsarClientImpl) PulsarClient.builder().serviceUrl(arguments[0]).build()) {
            ConsumerConfigurationData<byte[]> conf = new ConsumerConfigurationData<>();
            conf.getTopicNames().add(topic);
            conf.setSubscriptionName("own");
            CompletableFuture<Consumer<byte[]>> ready = new CompletableFuture<>();
            OwnFields consumer = new OwnFields(client, conf, ready);
            ready.get(ARRIVES_S, TimeUnit.SECONDS);
            try (Producer<byte[]> producer = client.newProducer().topic(topic).enableBatching(false).create()) {
                for (int number = 0; number < MESSAGES; number++) {
                    producer.send(("message-" + number).getBytes(StandardCharsets.UTF_8));
                }
            }
            for (int number = 0; number < MESSAGES; number++) {
                Message<byte[]> message = consumer.receive(ARRIVES_S, TimeUnit.SECONDS);
                StringBuilder line = new StringBuilder();
                line.append(message.getIndex().orElse(-1L)).append(' ').append(new String(message.getData(), StandardCharsets.UTF_8));
                line.append(' ').append(message.getBrokerPublishTime().orElse(0L) > 0);
                fieldsOf(consumer).forEach((field, text) -> {
                    if (field >= 100) {
                        line.append(' ').append(field).append('=').append(text);
                    }
                });
                System.out.println(line);
            }
            consumer.close();
        }
    }

    static Map<Integer, String> fieldsOf(OwnFields consumer) {
        return consumer.fields.remove();
    }
}
