// Package shop has tests of an application against a broker that they start: go test
package shop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

const orderSchema = `{"type":"record","name":"Order","fields":[
	{"name":"id","type":"string"},{"name":"amount","type":"double"}]}`

const billSchema = `{"type":"record","name":"Bill","fields":[{"name":"id","type":"int"}]}`

type order struct {
	ID     string  `json:"id"`
	Amount float64 `json:"amount"`
}

var broker *Magnetar

func TestMain(m *testing.M) {
	started, err := StartMagnetar()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	broker = started
	code := m.Run()
	broker.Stop()
	os.Exit(code)
}

func (s *Shop) producer(topic string, schema pulsar.Schema) pulsar.Producer {
	s.t.Helper()
	producer, err := s.CreateProducer(pulsar.ProducerOptions{Topic: s.Topic(topic), Schema: schema})
	must(s.t, err)
	return producer
}

func (s *Shop) consumer(topic string, schema pulsar.Schema) pulsar.Consumer {
	s.t.Helper()
	consumer, err := s.Subscribe(pulsar.ConsumerOptions{
		Topic: s.Topic(topic), SubscriptionName: "tests", Type: pulsar.Shared, Schema: schema,
	})
	must(s.t, err)
	return consumer
}

func send(t *testing.T, producer pulsar.Producer, message *pulsar.ProducerMessage) {
	t.Helper()
	_, err := producer.Send(context.Background(), message)
	must(t, err)
}

func receive(t *testing.T, consumer pulsar.Consumer, wait time.Duration) (pulsar.Message, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	return consumer.Receive(ctx)
}

func expectText(t *testing.T, consumer pulsar.Consumer, text string) {
	t.Helper()
	message, err := receive(t, consumer, 30*time.Second)
	must(t, err)
	if got := string(message.Payload()); got != text {
		t.Fatalf("got %q, want %q", got, text)
	}
	must(t, consumer.Ack(message))
}

func TestOrderArrivesAsItWasSent(t *testing.T) {
	shop := NewShop(t)
	consumer := shop.consumer("orders", nil)
	send(t, shop.producer("orders", nil), &pulsar.ProducerMessage{Payload: []byte("one coffee")})
	expectText(t, consumer, "one coffee")
}

func TestJSONOrderIsReadAsAStruct(t *testing.T) {
	shop := NewShop(t)
	consumer := shop.consumer("orders", pulsar.NewJSONSchema(orderSchema, nil))
	producer := shop.producer("orders", pulsar.NewJSONSchema(orderSchema, nil))
	send(t, producer, &pulsar.ProducerMessage{Value: order{"7", 12.5}})
	message, err := receive(t, consumer, 30*time.Second)
	must(t, err)
	var got order
	must(t, message.GetSchemaValue(&got))
	if got != (order{"7", 12.5}) {
		t.Fatalf("got %v", got)
	}
}

func TestProducerOfAnotherSchemaIsRefused(t *testing.T) {
	shop := NewShop(t)
	shop.producer("orders", pulsar.NewJSONSchema(orderSchema, nil))
	_, err := shop.CreateProducer(pulsar.ProducerOptions{
		Topic: shop.Topic("orders"), Schema: pulsar.NewJSONSchema(billSchema, nil),
	})
	if err == nil || !strings.Contains(err.Error(), "IncompatibleSchema") {
		t.Fatalf("got %v", err)
	}
}

func TestReminderComesAfterAnHour(t *testing.T) {
	shop := NewShop(t)
	consumer := shop.consumer("reminders", nil)
	send(t, shop.producer("reminders", nil), &pulsar.ProducerMessage{
		Payload: []byte("not paid"), DeliverAfter: time.Hour,
	})
	broker.Advance(t, 59*time.Minute)
	if _, err := receive(t, consumer, 200*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("it came early: %v", err)
	}
	broker.Advance(t, time.Minute)
	expectText(t, consumer, "not paid")
}

func TestProducerSurvivesALostReceipt(t *testing.T) {
	shop := NewShop(t)
	consumer := shop.consumer("orders", nil)
	producer := shop.producer("orders", nil)
	fired := broker.Fault(t, map[string]any{"on": "SEND_RECEIPT", "do": "drop"})
	send(t, producer, &pulsar.ProducerMessage{Payload: []byte("one coffee")})
	if count := fired(); count != 1 {
		t.Fatalf("the fault happened %d times", count)
	}
	expectText(t, consumer, "one coffee")
}

func TestOrdersExpireAfterAWeek(t *testing.T) {
	shop := NewShop(t)
	broker.Ask(t, "POST", "/admin/v2/namespaces/"+shop.Namespace+"/messageTTL", 7*24*3600, nil)
	shop.consumer("orders", nil).Close()
	send(t, shop.producer("orders", nil), &pulsar.ProducerMessage{Payload: []byte("one coffee")})
	shop.expectBacklog(1)
	broker.Advance(t, 8*24*time.Hour)
	shop.expectBacklog(0)
}

func (s *Shop) expectBacklog(want int) {
	s.t.Helper()
	var stats struct {
		Subscriptions map[string]struct {
			Backlog int `json:"msgBacklog"`
		} `json:"subscriptions"`
	}
	broker.Ask(s.t, "GET", "/admin/v2/persistent/"+s.Namespace+"/orders/stats", nil, &stats)
	if got := stats.Subscriptions["tests"].Backlog; got != want {
		s.t.Fatalf("the backlog is %d, not %d", got, want)
	}
}
