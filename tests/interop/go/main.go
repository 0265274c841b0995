// The official Go client against a broker: `interop PULSAR_URL ADMIN_URL [CHECK...]` runs the checks, each on a topic of its
// own, and prints a line for each: `ok NAME` or `failed NAME: REASON`. It exits 0 when all went through, whatever they found.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/log"
)

const (
	arrives = time.Minute
	silence = 300 * time.Millisecond
)

// bench is what a check works with.
type bench struct {
	pulsarURL, adminURL string
	client              pulsar.Client
	topic               string
}

type check struct {
	name string
	run  func(*bench)
}

// failure is how a check ends early; everything else that panics is a defect of the check.
type failure struct{ reason string }

func must[T any](value T, err error) T {
	expect(err == nil, "%v", err)
	return value
}

func must2[T, U any](first T, second U, err error) (T, U) {
	expect(err == nil, "%v", err)
	return first, second
}

func done(err error) { expect(err == nil, "%v", err) }

func expect(good bool, format string, values ...any) {
	if !good {
		panic(failure{fmt.Sprintf(format, values...)})
	}
}

func quiet() log.Logger {
	return log.NewLoggerWithSlog(slog.New(slog.NewTextHandler(io.Discard, nil)))
}

func connect(url string) pulsar.Client {
	return must(pulsar.NewClient(pulsar.ClientOptions{
		URL: url, Logger: quiet(), OperationTimeout: arrives, ConnectionTimeout: arrives,
		// For pulsar+ssl alone.
		TLSTrustCertsFilePath: os.Getenv("TRUST_CERTS"), TLSValidateHostname: true,
	}))
}

func main() {
	run := time.Now().UnixNano()
	wanted := os.Args[3:]
	all := append(checks, adminChecks...)
	if len(wanted) > 0 {
		all = append(all, damagedChecks...)
	}
	for number, one := range all {
		if len(wanted) > 0 && !slices.Contains(wanted, one.name) {
			continue
		}
		topic := fmt.Sprintf("go-%x-%d", run, number)
		if reason := outcome(one, os.Args[1], os.Args[2], topic); reason != "" {
			fmt.Printf("failed %s: %s\n", one.name, reason)
		} else {
			fmt.Printf("ok %s\n", one.name)
		}
	}
}

func outcome(one check, pulsarURL, adminURL, topic string) (reason string) {
	defer func() {
		switch found := recover().(type) {
		case nil:
		case failure:
			reason = found.reason
		default:
			panic(found)
		}
	}()
	client := connect(pulsarURL)
	defer client.Close()
	one.run(&bench{pulsarURL, adminURL, client, topic})
	return ""
}

// Short forms of the client.

func (b *bench) producer(options pulsar.ProducerOptions) pulsar.Producer {
	if options.Topic == "" {
		options.Topic = b.topic
	}
	return must(b.client.CreateProducer(options))
}

func (b *bench) consumer(options pulsar.ConsumerOptions) pulsar.Consumer {
	if options.Topic == "" && options.TopicsPattern == "" && options.Topics == nil {
		options.Topic = b.topic
	}
	if options.SubscriptionName == "" {
		options.SubscriptionName = "s"
	}
	options.SubscriptionInitialPosition = pulsar.SubscriptionPositionEarliest
	return must(b.client.Subscribe(options))
}

// publish sends `message N` for each N from first on and returns the ids once all are confirmed.
func publish(producer pulsar.Producer, first, count int, key func(int) string) []pulsar.MessageID {
	ids := make([]pulsar.MessageID, count)
	failures := make(chan error, count)
	for number := range count {
		message := pulsar.ProducerMessage{Payload: body(first + number)}
		if key != nil {
			message.Key = key(first + number)
		}
		producer.SendAsync(context.Background(), &message,
			func(id pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
				ids[number] = id
				failures <- err
			})
	}
	done(producer.FlushWithCtx(context.Background()))
	for range count {
		done(<-failures)
	}
	return ids
}

func body(number int) []byte { return fmt.Appendf(nil, "message %d", number) }

func next(consumer pulsar.Consumer) pulsar.Message {
	ctx, cancel := context.WithTimeout(context.Background(), arrives)
	defer cancel()
	return must(consumer.Receive(ctx))
}

// receive takes the messages of publish(first, count) and acknowledges them; any other message is a failure.
func receive(consumer pulsar.Consumer, first, count int) {
	for number := first; number < first+count; number++ {
		message := next(consumer)
		expect(string(message.Payload()) == string(body(number)), "%q came instead of %d", message.Payload(), number)
		done(consumer.Ack(message))
	}
}

func nothingComes(consumer pulsar.Consumer) {
	ctx, cancel := context.WithTimeout(context.Background(), silence)
	defer cancel()
	message, err := consumer.Receive(ctx)
	if err == nil {
		panic(failure{fmt.Sprintf("unexpected message %q", message.Payload())})
	}
	expect(errors.Is(err, context.DeadlineExceeded), "%v", err)
}
