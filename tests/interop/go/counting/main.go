// The official Go client as a program of counting.py, which says what it prints: `counting URL PREFIX RATE`.
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/log"
)

const keys = 20

var (
	topics   = []string{"single", "batched"}
	printing sync.Mutex
	stopping atomic.Bool
)

func say(format string, values ...any) {
	printing.Lock()
	defer printing.Unlock()
	fmt.Printf(format+"\n", values...)
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func position(id pulsar.MessageID) string {
	return fmt.Sprintf("%d:%d:%d", id.LedgerID(), id.EntryID(), max(0, id.BatchIdx()))
}

func main() {
	url, prefix, rate := os.Args[1], os.Args[2], must(strconv.ParseFloat(os.Args[3], 64))
	client := must(pulsar.NewClient(pulsar.ClientOptions{
		URL: url, OperationTimeout: time.Minute,
		Logger: log.NewLoggerWithSlog(slog.New(slog.NewTextHandler(os.Stderr, nil))),
	}))
	var producers []pulsar.Producer
	for _, topic := range topics {
		receive(client, prefix, topic, "alone", pulsar.Exclusive)
		receive(client, prefix, topic, "keys", pulsar.KeyShared)
		receive(client, prefix, topic, "keys", pulsar.KeyShared)
		producers = append(producers, must(client.CreateProducer(pulsar.ProducerOptions{
			Topic: prefix + topic, SendTimeout: -1, DisableBatching: topic != "batched",
			BatcherBuilderType: pulsar.KeyBasedBatchBuilder, BatchingMaxPublishDelay: 100 * time.Millisecond,
		})))
	}
	say("ready")
	var senders sync.WaitGroup
	for place, producer := range producers {
		senders.Add(1)
		go func() {
			defer senders.Done()
			send(producer, topics[place], time.Duration(1e9*float64(len(topics))/rate))
		}()
	}
	input := bufio.NewReader(os.Stdin)
	input.ReadString('\n')
	stopping.Store(true)
	senders.Wait()
	say("stopped")
	io.Copy(io.Discard, input)
}

func send(producer pulsar.Producer, topic string, pause time.Duration) {
	due := time.Now()
	for number := 0; !stopping.Load(); number++ {
		key := strconv.Itoa(number % keys)
		name := fmt.Sprintf("%s %s %d", topic, key, number)
		say("sent %s", name)
		message := pulsar.ProducerMessage{Key: key, Payload: []byte(strconv.Itoa(number))}
		producer.SendAsync(context.Background(), &message,
			func(id pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
				if err != nil {
					say("failed %s %v", name, err)
				} else {
					say("confirmed %s %s", name, position(id))
				}
			})
		due = due.Add(pause)
		time.Sleep(time.Until(due))
	}
}

func receive(client pulsar.Client, prefix, topic, subscription string, kind pulsar.SubscriptionType) {
	consumer := must(client.Subscribe(pulsar.ConsumerOptions{
		Topic: prefix + topic, SubscriptionName: subscription, Type: kind,
	}))
	go func() {
		for {
			message, err := consumer.Receive(context.Background())
			if err != nil {
				say("trouble %s %s %v", subscription, topic, err)
				return
			}
			say("received %s %s %s %s %s",
				subscription, topic, message.Key(), message.Payload(), position(message.ID()))
			if err := consumer.Ack(message); err != nil {
				say("trouble %s %s %v", subscription, topic, err)
			}
		}
	}()
}
