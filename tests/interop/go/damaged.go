package main

import (
	"context"
	"fmt"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// damagedChecks run where they are named alone: they need a broker with a listener `proxy`, which damages each message with
// `flip` once.
var damagedChecks = []check{
	{"checksum", func(b *bench) { damaged(b, "checksum", false, false) }},
	{"checksum_batched", func(b *bench) { damaged(b, "checksum_batched", true, false) }},
	{"checksum_deduplicated", func(b *bench) { damaged(b, "checksum_deduplicated", false, true) }},
	{"checksum_deduplicated_batched", func(b *bench) { damaged(b, "checksum_deduplicated_batched", true, true) }},
}

const (
	sent   = 40
	inARow = 4
)

// damaged: every message is stored in order, with deduplication once, although messages in the middle were damaged on their way.
func damaged(b *bench, name string, batched, deduplicated bool) {
	client := must(pulsar.NewClient(pulsar.ClientOptions{
		URL: b.pulsarURL, ListenerName: "proxy", Logger: quiet(), OperationTimeout: arrives, ConnectionTimeout: arrives,
	}))
	defer client.Close()
	over := &bench{b.pulsarURL, b.adminURL, client, "refused-" + name + "-" + b.topic}
	over.consumer(pulsar.ConsumerOptions{}).Close() // Its subscription keeps the topic.
	if deduplicated {
		over.policy("deduplicationEnabled", "true")
	}
	producer := over.producer(pulsar.ProducerOptions{
		DisableBatching: !batched, SendTimeout: -1,
		// By number alone: a delay that ends early would put good and damaged messages into one batch.
		BatchingMaxMessages: inARow, BatchingMaxPublishDelay: time.Hour,
	})
	bodies := make([]string, sent)
	answers := make([]chan error, sent)
	for number := range sent {
		bodies[number] = fmt.Sprint("good ", number)
		if number/inARow%2 == 1 {
			bodies[number] = fmt.Sprint("flip ", number)
		}
		answer := make(chan error, 1)
		answers[number] = answer
		producer.SendAsync(context.Background(), &pulsar.ProducerMessage{Payload: []byte(bodies[number])},
			func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) { answer <- err })
	}
	// The client ends a full batch when the next message comes: without this the last one would wait for the delay.
	go func() { _ = producer.Flush() }()
	for number, answer := range answers {
		select {
		case err := <-answer:
			expect(err == nil, "%s: %v", bodies[number], err)
		case <-time.After(arrives):
			expect(false, "no answer for %s", bodies[number])
		}
	}
	reader := must(client.CreateReader(pulsar.ReaderOptions{Topic: over.topic, StartMessageID: pulsar.EarliestMessageID()}))
	defer reader.Close()
	var got []string
	seen := map[string]bool{}
	for reader.HasNext() {
		body := string(must(reader.Next(context.Background())).Payload())
		// Without deduplication the client sends a message again whose receipt it has not read when its producer is closed.
		if deduplicated || !seen[body] {
			got = append(got, body)
		}
		seen[body] = true
	}
	expect(fmt.Sprint(got) == fmt.Sprint(bodies), "stored %d of %d: %q", len(got), sent, got)
}
