package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/log"
)

const (
	watched     = 2 * time.Second
	reconnects  = 10 // a second
	endOfTopic  = "Received invalid command type: REACHED_END_OF_TOPIC"
	terminating = "/terminate"
)

// ends counts the log lines with which this client closes its connection at REACHED_END_OF_TOPIC.
type ends struct{ count atomic.Int64 }

func (e *ends) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelError }
func (e *ends) WithAttrs([]slog.Attr) slog.Handler               { return e }
func (e *ends) WithGroup(string) slog.Handler                    { return e }
func (e *ends) Handle(_ context.Context, record slog.Record) error {
	if strings.Contains(record.Message, endOfTopic) {
		e.count.Add(1)
	}
	return nil
}

func (b *bench) terminate() {
	url := b.adminURL + "/admin/v2/persistent/public/default/" + b.topic + terminating
	answer := must(http.Post(url, "application/json", nil))
	done(answer.Body.Close())
	expect(answer.StatusCode == http.StatusOK, "status %d", answer.StatusCode)
}

// terminatedSend: the producer learns that its topic was terminated; its send does not time out.
func terminatedSend(b *bench) {
	consumer := b.consumer(pulsar.ConsumerOptions{})
	producer := b.producer(pulsar.ProducerOptions{DisableBatching: true, SendTimeout: arrives})
	publish(producer, 0, 1, nil)
	b.terminate()
	_, err := producer.Send(context.Background(), &pulsar.ProducerMessage{Payload: body(1)})
	told := errors.Is(err, pulsar.ErrTopicTerminated) || errors.Is(err, pulsar.ErrProducerClosed)
	expect(told, "instead of a terminated topic: %v", err)
	receive(consumer, 0, 1)
}

// retried calls until the connection lives long enough for an answer: the client fails all that waits on a connection which it
// closes, and it closes one at each REACHED_END_OF_TOPIC.
func retried[T any](call func() (T, error)) T {
	var value T
	var err error
	for end := time.Now().Add(arrives); time.Now().Before(end); {
		if value, err = call(); err == nil {
			return value
		}
	}
	return must(value, err)
}

// endWithoutSpin: this client reconnects at REACHED_END_OF_TOPIC. Its other topics go on, and it does not spin.
func endWithoutSpin(b *bench) {
	seen := &ends{}
	client := must(pulsar.NewClient(pulsar.ClientOptions{
		URL: b.pulsarURL, Logger: log.NewLoggerWithSlog(slog.New(seen)), OperationTimeout: arrives,
	}))
	defer client.Close()
	one := must(client.Subscribe(pulsar.ConsumerOptions{Topic: b.topic, SubscriptionName: "s", AckWithResponse: true}))
	publish(b.producer(pulsar.ProducerOptions{}), 0, 10, nil)
	receive(one, 0, 10)
	began := time.Now()
	b.terminate()
	waitUntil(func() bool { return seen.count.Load() > 0 })
	time.Sleep(watched)
	count, passed := seen.count.Load(), time.Since(began)
	expect(float64(count) <= reconnects*passed.Seconds(), "%d reconnects in %v", count, passed)
	other := b.topic + "-other"
	two := retried(func() (pulsar.Consumer, error) {
		return client.Subscribe(pulsar.ConsumerOptions{Topic: other, SubscriptionName: "s"})
	})
	publish(b.producer(pulsar.ProducerOptions{Topic: other}), 0, 100, nil)
	receive(two, 0, 100)
	one.Close()
	two.Close()
}

type turns struct{ active, inactive atomic.Int64 }

func (t *turns) BecameActive(pulsar.Consumer, string, int32)   { t.active.Add(1) }
func (t *turns) BecameInactive(pulsar.Consumer, string, int32) { t.inactive.Add(1) }

// activeIsTold: the first consumer of a Failover subscription hears that it is active, and so does its successor.
func activeIsTold(b *bench) {
	join := func(name string) (pulsar.Consumer, *turns) {
		told := &turns{}
		options := pulsar.ConsumerOptions{Name: name, Type: pulsar.Failover, EventListener: told, AckWithResponse: true}
		return b.consumer(options), told
	}
	first, told := join("a")
	waitUntil(func() bool { return told.active.Load() == 1 })
	_, second := join("b")
	first.Close()
	waitUntil(func() bool { return second.active.Load() > 0 })
}
