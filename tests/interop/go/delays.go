package main

import (
	"context"
	"fmt"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// sendDelayed sends `message N` with a delay and returns its delivery time.
func sendDelayed(producer pulsar.Producer, number int, delay time.Duration) time.Time {
	due := time.Now().Add(delay)
	must(producer.Send(context.Background(), &pulsar.ProducerMessage{Payload: body(number), DeliverAt: due}))
	return due
}

// arrivesAt takes `message N` and expects it not before its time; the broker of this test is strict, in milliseconds.
func arrivesAt(consumer pulsar.Consumer, number int, due time.Time) {
	receive(consumer, number, 1)
	now := time.Now()
	expect(now.UnixMilli() >= due.UnixMilli(), "message %d came %v early", number, due.Sub(now))
}

func delayed(b *bench) {
	for _, kind := range []pulsar.SubscriptionType{pulsar.Shared, pulsar.KeyShared} {
		topic := fmt.Sprintf("%s-%d", b.topic, kind)
		consumer := b.consumer(pulsar.ConsumerOptions{Topic: topic, Type: kind})
		exclusive := b.consumer(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "exclusive"})
		producer := b.producer(pulsar.ProducerOptions{Topic: topic})
		later := sendDelayed(producer, 1, 1500*time.Millisecond)
		soon := sendDelayed(producer, 0, 700*time.Millisecond)
		must(producer.Send(context.Background(), &pulsar.ProducerMessage{Payload: body(2), DeliverAfter: time.Hour}))
		receive(exclusive, 1, 1)
		receive(exclusive, 0, 1)
		receive(exclusive, 2, 1)
		arrivesAt(consumer, 0, soon)
		arrivesAt(consumer, 1, later)
		nothingComes(consumer)
	}
}

// retryTopic gives a message back three times: the client sends it to the retry topic with a delay, then to the dead letters.
func retryTopic(b *bench) {
	policy := pulsar.DLQPolicy{
		MaxDeliveries: 2, RetryLetterTopic: b.topic + "-RETRY", DeadLetterTopic: b.topic + "-dead",
	}
	dead := b.consumer(pulsar.ConsumerOptions{Topic: policy.DeadLetterTopic})
	consumer := b.consumer(pulsar.ConsumerOptions{Type: pulsar.Shared, RetryEnable: true, DLQ: &policy})
	publish(b.producer(pulsar.ProducerOptions{DisableBatching: true}), 0, 1, nil)
	const delay = 500 * time.Millisecond
	asked := time.Now().Add(-delay)
	for count := range 3 {
		message := next(consumer)
		expect(time.Since(asked) >= delay, "retry %d came after %v", count, time.Since(asked))
		times := message.Properties()["RECONSUMETIMES"]
		expect(count == 0 || times == fmt.Sprint(count), "count %q instead of %d", times, count)
		asked = time.Now()
		consumer.ReconsumeLater(message, delay)
	}
	expect(string(next(dead).Payload()) == string(body(0)), "another message is dead")
}

type doubling struct{}

// Next is the delay of the redelivery number `count`.
func (doubling) Next(count uint32) time.Duration { return 100 * time.Millisecond << min(count, 3) }

func nackBackoff(b *bench) {
	consumer := b.consumer(pulsar.ConsumerOptions{Type: pulsar.Shared, NackBackoffPolicy: doubling{}})
	due := sendDelayed(b.producer(pulsar.ProducerOptions{}), 0, 500*time.Millisecond)
	for count := uint32(0); count <= 3; count++ {
		message := next(consumer)
		// Only the first time is the broker's; the client asks for the others when its own policy says so.
		expect(count > 0 || time.Now().UnixMilli() >= due.UnixMilli(), "the message is early")
		expect(message.RedeliveryCount() == count, "count %d instead of %d", message.RedeliveryCount(), count)
		consumer.Nack(message)
	}
	receive(consumer, 0, 1)
}
