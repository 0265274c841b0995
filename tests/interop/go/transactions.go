// Checks of transactions; the broker runs with transactionCoordinatorEnabled=true.
package main

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/log"
)

// transactional is the bench with a client that may begin transactions.
func (b *bench) transactional() *bench {
	quiet := log.NewLoggerWithSlog(slog.New(slog.NewTextHandler(io.Discard, nil)))
	client := must(pulsar.NewClient(pulsar.ClientOptions{
		URL: b.pulsarURL, Logger: quiet, OperationTimeout: arrives, ConnectionTimeout: arrives,
		EnableTransaction: true,
	}))
	return &bench{b.pulsarURL, b.adminURL, client, b.topic}
}

func (b *bench) begin(timeout time.Duration) pulsar.Transaction {
	return must(b.client.NewTransaction(timeout))
}

func publishIn(transaction pulsar.Transaction, producer pulsar.Producer, first, count int) {
	for number := first; number < first+count; number++ {
		must(producer.Send(context.Background(), &pulsar.ProducerMessage{
			Payload: body(number), Transaction: transaction,
		}))
	}
}

func transactionCommit(b *bench) {
	b = b.transactional()
	defer b.client.Close()
	consumer := b.consumer(pulsar.ConsumerOptions{})
	producer := b.producer(pulsar.ProducerOptions{DisableBatching: true})
	transaction := b.begin(time.Minute)
	publishIn(transaction, producer, 0, 5)
	publish(producer, 5, 2, nil)
	nothingComes(consumer)
	done(transaction.Commit(context.Background()))
	receive(consumer, 0, 7)
	nothingComes(consumer)
}

func transactionAbort(b *bench) {
	b = b.transactional()
	defer b.client.Close()
	consumer := b.consumer(pulsar.ConsumerOptions{})
	producer := b.producer(pulsar.ProducerOptions{DisableBatching: true})
	transaction := b.begin(time.Minute)
	publishIn(transaction, producer, 100, 5)
	publish(producer, 0, 2, nil)
	nothingComes(consumer)
	done(transaction.Abort(context.Background()))
	receive(consumer, 0, 2)
	nothingComes(consumer)
}

func transactionAcks(b *bench) {
	b = b.transactional()
	defer b.client.Close()
	options := pulsar.ConsumerOptions{Type: pulsar.Shared}
	consumer := b.consumer(options)
	publish(b.producer(pulsar.ProducerOptions{DisableBatching: true}), 0, 5, nil)
	for _, end := range []func(pulsar.Transaction, context.Context) error{
		pulsar.Transaction.Abort, pulsar.Transaction.Commit,
	} {
		transaction := b.begin(time.Minute)
		for range 5 {
			done(consumer.AckWithTxn(next(consumer), transaction))
		}
		nothingComes(consumer)
		done(end(transaction, context.Background()))
	}
	consumer.Close()
	nothingComes(b.consumer(options))
}

func transactionConflict(b *bench) {
	b = b.transactional()
	defer b.client.Close()
	consumer := b.consumer(pulsar.ConsumerOptions{Type: pulsar.Shared})
	publish(b.producer(pulsar.ProducerOptions{DisableBatching: true}), 0, 1, nil)
	message := next(consumer)
	first, second := b.begin(time.Minute), b.begin(time.Minute)
	done(consumer.AckWithTxn(message, first))
	err := consumer.AckWithTxn(message, second)
	expect(err != nil && strings.Contains(err.Error(), "TransactionConflict"), "refused with %v", err)
	done(first.Commit(context.Background()))
}

func transactionTimeOut(b *bench) {
	b = b.transactional()
	defer b.client.Close()
	consumer := b.consumer(pulsar.ConsumerOptions{})
	producer := b.producer(pulsar.ProducerOptions{DisableBatching: true})
	// Long enough for a busy machine to publish in it.
	transaction := b.begin(10 * time.Second)
	publishIn(transaction, producer, 100, 2)
	publish(producer, 0, 2, nil)
	receive(consumer, 0, 2)
	expect(transaction.Commit(context.Background()) != nil, "committed after its time")
}
