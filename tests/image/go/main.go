// The Pulsar module of testcontainers on an image: `containers IMAGE` runs the checks, each in a container of its own,
// and prints a line for each: `ok NAME` or `failed NAME: REASON`. It exits 0 when all were run.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	client "github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/sirupsen/logrus"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/modules/pulsar"
)

// A check gets a way to start its container, with options of the module.
type check func(ctx context.Context, start starter) error
type starter func(options ...testcontainers.ContainerCustomizer) (*pulsar.Container, error)

// Keeps what the container prints.
type output struct {
	mutex sync.Mutex
	text  strings.Builder
}

func (o *output) Accept(line testcontainers.Log) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.text.Write(line.Content)
}

func (o *output) contains(text string) bool {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return strings.Contains(o.text.String(), text)
}

func messages(ctx context.Context, start starter) error {
	container, err := start()
	if err != nil {
		return err
	}
	return sendAndReceive(ctx, container, false)
}

func environment(ctx context.Context, start starter) error {
	container, err := start(pulsar.WithPulsarEnv("maxMessageSize", "70000"))
	if err != nil {
		return err
	}
	url, err := container.HTTPServiceURL(ctx)
	if err != nil {
		return err
	}
	answer, err := http.Get(url + "/admin/v2/brokers/configuration/runtime")
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if !strings.Contains(strings.ReplaceAll(string(body), " ", ""), `"maxMessageSize":"70000"`) {
		return errors.New("another maxMessageSize")
	}
	return sendAndReceive(ctx, container, false)
}

func transactions(ctx context.Context, start starter) error {
	container, err := start(pulsar.WithTransactions())
	if err != nil {
		return err
	}
	return sendAndReceive(ctx, container, true)
}

func functionsWorker(ctx context.Context, start starter) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	printed := &output{}
	consumer := &testcontainers.LogConsumerConfig{Consumers: []testcontainers.LogConsumer{printed}}
	_, err := start(pulsar.WithFunctionsWorker(), testcontainers.WithLogConsumerConfig(consumer), within(ctx))
	if err == nil {
		return errors.New("the container started with a functions worker")
	}
	if !printed.contains("the functions worker is not enabled") {
		return errors.New("the log does not say why")
	}
	return nil
}

// Ends the waits of the module with the context.
func within(ctx context.Context) testcontainers.CustomizeRequestOption {
	deadline, _ := ctx.Deadline()
	return func(request *testcontainers.GenericContainerRequest) error {
		return testcontainers.WithWaitStrategyAndDeadline(time.Until(deadline), request.WaitingFor)(request)
	}
}

func sendAndReceive(ctx context.Context, container *pulsar.Container, inTransaction bool) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	url, err := container.BrokerURL(ctx)
	if err != nil {
		return err
	}
	quiet := logrus.New()
	quiet.SetOutput(io.Discard)
	connected, err := client.NewClient(client.ClientOptions{
		URL: url, Logger: plog.NewLoggerWithLogrus(quiet), EnableTransaction: inTransaction,
	})
	if err != nil {
		return err
	}
	defer connected.Close()
	consumer, err := connected.Subscribe(client.ConsumerOptions{Topic: "t", SubscriptionName: "s"})
	if err != nil {
		return err
	}
	producer, err := connected.CreateProducer(client.ProducerOptions{Topic: "t"})
	if err != nil {
		return err
	}
	message := &client.ProducerMessage{Payload: []byte("hello")}
	if inTransaction {
		if message.Transaction, err = connected.NewTransaction(time.Minute); err != nil {
			return err
		}
	}
	if _, err = producer.Send(ctx, message); err != nil {
		return err
	}
	if inTransaction {
		if err = message.Transaction.Commit(ctx); err != nil {
			return err
		}
	}
	received, err := consumer.Receive(ctx)
	if err != nil {
		return err
	}
	if string(received.Payload()) != "hello" {
		return fmt.Errorf("another message: %q", received.Payload())
	}
	return consumer.Ack(received)
}

func run(name string, one check, image string) {
	ctx := context.Background()
	var started []*pulsar.Container
	before := time.Now()
	err := one(ctx, func(options ...testcontainers.ContainerCustomizer) (*pulsar.Container, error) {
		container, err := pulsar.Run(ctx, image, options...)
		if container != nil {
			started = append(started, container)
		}
		return container, err
	})
	for _, container := range started {
		if ended := testcontainers.TerminateContainer(container); ended != nil && err == nil {
			err = ended
		}
	}
	fmt.Fprintf(os.Stderr, "%s %d ms\n", name, time.Since(before).Milliseconds())
	if err != nil {
		fmt.Printf("failed %s: %s\n", name, strings.ReplaceAll(err.Error(), "\n", " "))
		return
	}
	fmt.Printf("ok %s\n", name)
}

func main() {
	image := os.Args[1]
	run("messages", messages, image)
	run("environment", environment, image)
	run("transactions", transactions, image)
	run("functions_worker", functionsWorker, image)
}
