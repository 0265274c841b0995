package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"math"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

var stringType = reflect.TypeFor[*string]()

var checks = []check{
	{"thousand_unbatched", thousandUnbatched},
	{"thousand_batched_and_compressed", thousandBatched},
	{"ack_receipts", ackReceipts},
	{"cumulative_ack", cumulativeAck},
	{"batch_index_ack", batchIndexAck},
	{"nack_and_redelivery_count", nack},
	{"dead_letter", deadLetter},
	{"reader", reader},
	{"seek", seek},
	{"last_message_ids", lastMessageIDs},
	{"key_shared", keyShared},
	{"failover", failover},
	{"pattern", pattern},
	{"partitions", partitions},
	{"chunks", chunks},
	{"indexes", indexes},
	{"properties", properties},
	{"access_modes", accessModes},
	{"unsubscribe", unsubscribe},
	{"http_lookup", httpLookup},
	{"non_persistent", nonPersistent},
	{"zero_queue", zeroQueue},
	{"table_view", tableView},
	{"transaction_commit", transactionCommit},
	{"transaction_abort", transactionAbort},
	{"transaction_acks", transactionAcks},
	{"transaction_conflict", transactionConflict},
	{"transaction_time_out", transactionTimeOut},
	{"terminated_send", terminatedSend},
	{"end_without_spin", endWithoutSpin},
	{"active_is_told", activeIsTold},
	{"delayed", delayed},
	{"retry_topic", retryTopic},
	{"nack_backoff", nackBackoff},
	{"compaction", compaction},
}

func thousandUnbatched(b *bench) {
	consumer := b.consumer(pulsar.ConsumerOptions{})
	publish(b.producer(pulsar.ProducerOptions{DisableBatching: true}), 0, 1000, nil)
	receive(consumer, 0, 1000)
	nothingComes(consumer)
}

func thousandBatched(b *bench) {
	consumer := b.consumer(pulsar.ConsumerOptions{})
	for number, kind := range []pulsar.CompressionType{pulsar.NoCompression, pulsar.LZ4, pulsar.ZLib, pulsar.ZSTD} {
		producer := b.producer(pulsar.ProducerOptions{CompressionType: kind, BatchingMaxMessages: 100})
		publish(producer, number*1000, 1000, nil)
		receive(consumer, number*1000, 1000)
	}
	nothingComes(consumer)
}

func ackReceipts(b *bench) {
	options := pulsar.ConsumerOptions{Type: pulsar.Shared, AckWithResponse: true}
	consumer := b.consumer(options)
	publish(b.producer(pulsar.ProducerOptions{DisableBatching: true}), 0, 100, nil)
	receive(consumer, 0, 40)
	var rest []pulsar.MessageID
	for range 20 {
		rest = append(rest, next(consumer).ID())
	}
	done(consumer.AckIDList(rest))
	consumer.Close()
	receive(b.consumer(options), 60, 40)
}

func cumulativeAck(b *bench) {
	options := pulsar.ConsumerOptions{AckWithResponse: true}
	consumer := b.consumer(options)
	publish(b.producer(pulsar.ProducerOptions{DisableBatching: true}), 0, 20, nil)
	var last pulsar.Message
	for range 12 {
		last = next(consumer)
	}
	done(consumer.AckCumulative(last))
	consumer.Close()
	receive(b.consumer(options), 12, 8)
}

func batchIndexAck(b *bench) {
	options := pulsar.ConsumerOptions{
		Type: pulsar.Shared, EnableBatchIndexAcknowledgment: true, AckWithResponse: true,
	}
	consumer := b.consumer(options)
	publish(b.producer(pulsar.ProducerOptions{BatchingMaxMessages: 10, BatchingMaxPublishDelay: time.Minute}), 0, 10, nil)
	for number := range 10 {
		if message := next(consumer); number%2 == 0 {
			done(consumer.Ack(message))
		}
	}
	consumer.Close()
	again := b.consumer(options)
	for number := 1; number < 10; number += 2 {
		receive(again, number, 1)
	}
	nothingComes(again)
}

func nack(b *bench) {
	consumer := b.consumer(pulsar.ConsumerOptions{Type: pulsar.Shared, NackRedeliveryDelay: 100 * time.Millisecond})
	publish(b.producer(pulsar.ProducerOptions{DisableBatching: true}), 0, 3, nil)
	receive(consumer, 0, 1)
	consumer.Nack(next(consumer))
	receive(consumer, 2, 1)
	for count := uint32(1); count <= 3; count++ {
		message := next(consumer)
		expect(string(message.Payload()) == string(body(1)), "%q came", message.Payload())
		expect(message.RedeliveryCount() == count, "count %d instead of %d", message.RedeliveryCount(), count)
		consumer.Nack(message)
	}
	receive(consumer, 1, 1)
}

func deadLetter(b *bench) {
	consumer := b.consumer(pulsar.ConsumerOptions{
		Type:                pulsar.Shared,
		NackRedeliveryDelay: 100 * time.Millisecond,
		DLQ:                 &pulsar.DLQPolicy{MaxDeliveries: 2, DeadLetterTopic: b.topic + "-dead"},
	})
	dead := b.consumer(pulsar.ConsumerOptions{Topic: b.topic + "-dead"})
	publish(b.producer(pulsar.ProducerOptions{}), 0, 1, nil)
	for range 2 {
		consumer.Nack(next(consumer))
	}
	receive(dead, 0, 1)
}

func reader(b *bench) {
	ids := publish(b.producer(pulsar.ProducerOptions{BatchingMaxMessages: 4}), 0, 20, nil)
	for start, id := range map[int]pulsar.MessageID{0: pulsar.EarliestMessageID(), 6: ids[5], 20: pulsar.LatestMessageID()} {
		one := must(b.client.CreateReader(pulsar.ReaderOptions{Topic: b.topic, StartMessageID: id}))
		for number := start; number < 20; number++ {
			expect(one.HasNext(), "nothing behind %d", number)
			message := must(one.Next(context.Background()))
			expect(string(message.Payload()) == string(body(number)), "%q instead of %d", message.Payload(), number)
		}
		expect(!one.HasNext(), "more than there is, from %d", start)
		one.Close()
	}
}

// The ends of the topic as the client takes them in a seek: with a partition, which EarliestMessageID does not have.
var (
	earliest = pulsar.NewMessageID(-1, -1, -1, 0)
	latest   = pulsar.NewMessageID(math.MaxInt64, math.MaxInt64, -1, 0)
)

func seek(b *bench) {
	consumer := b.consumer(pulsar.ConsumerOptions{StartMessageIDInclusive: true})
	producer := b.producer(pulsar.ProducerOptions{DisableBatching: true})
	ids := publish(producer, 0, 50, nil)
	receive(consumer, 0, 50)
	done(consumer.Seek(ids[20]))
	receive(consumer, 20, 30)
	done(consumer.Seek(earliest))
	receive(consumer, 0, 50)
	done(consumer.SeekByTime(time.Now().Add(-time.Hour)))
	receive(consumer, 0, 50)
	done(consumer.Seek(latest))
	nothingComes(consumer)
	publish(producer, 50, 1, nil)
	receive(consumer, 50, 1)
}

func lastMessageIDs(b *bench) {
	consumer := b.consumer(pulsar.ConsumerOptions{})
	ids := publish(b.producer(pulsar.ProducerOptions{BatchingMaxMessages: 5}), 0, 10, nil)
	last := must(consumer.GetLastMessageIDs())
	expect(len(last) == 1, "%d ids", len(last))
	newest := ids[9]
	expect(last[0].LedgerID() == newest.LedgerID() && last[0].EntryID() == newest.EntryID() &&
		last[0].BatchIdx() == newest.BatchIdx(), "%v instead of %v", last[0], newest)
}

// keyShared lets a consumer join and one leave, and expects each key's messages once and in order.
func keyShared(b *bench) {
	const keys, total = 20, 2000
	var lock sync.Mutex
	got, seen := map[string][]string{}, 0
	enough := func(count int) bool {
		lock.Lock()
		defer lock.Unlock()
		return seen >= count
	}
	work := func(consumer pulsar.Consumer, ctx context.Context, gone chan<- bool) {
		for {
			message, err := consumer.Receive(ctx)
			if err != nil {
				consumer.Close()
				gone <- true
				return
			}
			lock.Lock()
			got[message.Key()] = append(got[message.Key()], string(message.Payload()))
			seen++
			lock.Unlock()
			done(consumer.Ack(message))
		}
	}
	gone := make(chan bool, 3)
	join := func() context.CancelFunc {
		ctx, cancel := context.WithCancel(context.Background())
		consumer := b.consumer(pulsar.ConsumerOptions{Type: pulsar.KeyShared, AckWithResponse: true, ReceiverQueueSize: 20})
		go work(consumer, ctx, gone)
		return cancel
	}
	key := func(number int) string { return fmt.Sprint("key-", number%keys) }
	first, second := join(), join()
	producer := b.producer(pulsar.ProducerOptions{DisableBatching: true})
	publish(producer, 0, total/2, key)
	waitUntil(func() bool { return enough(total / 4) })
	third := join()
	publish(producer, total/2, total/2, key)
	first()
	waitUntil(func() bool { return enough(total) })
	second()
	third()
	for range 3 {
		<-gone
	}
	for number := range total {
		list := got[key(number)]
		expect(len(list) == total/keys, "%d messages of %s", len(list), key(number))
		expect(list[number/keys] == string(body(number)), "%s out of order: %s", key(number), list[number/keys])
	}
}

func waitUntil(condition func() bool) {
	deadline := time.Now().Add(2 * arrives)
	for tick := time.NewTicker(5 * time.Millisecond); !condition(); <-tick.C {
		expect(time.Now().Before(deadline), "the condition did not come true")
	}
}

func failover(b *bench) {
	options := pulsar.ConsumerOptions{Type: pulsar.Failover, AckWithResponse: true}
	first := b.consumer(options)
	publish(b.producer(pulsar.ProducerOptions{DisableBatching: true}), 0, 20, nil)
	receive(first, 0, 10)
	first.Close()
	receive(b.consumer(options), 10, 10)
}

func pattern(b *bench) {
	publish(b.producer(pulsar.ProducerOptions{Topic: b.topic + "-a"}), 0, 1, nil)
	consumer := b.consumer(pulsar.ConsumerOptions{
		TopicsPattern: "persistent://public/default/" + b.topic + "-.*", AutoDiscoveryPeriod: time.Second,
	})
	receive(consumer, 0, 1)
	publish(b.producer(pulsar.ProducerOptions{Topic: b.topic + "-late"}), 1, 1, nil)
	receive(consumer, 1, 1)
}

func partitions(b *bench) {
	b.partitioned(4)
	expect(len(must(b.client.TopicPartitions(b.topic))) == 4, "four partitions expected")
	consumer := b.consumer(pulsar.ConsumerOptions{})
	publish(b.producer(pulsar.ProducerOptions{}), 0, 200, func(number int) string { return fmt.Sprint(number % 20) })
	homes := map[string]int32{}
	for range 200 {
		message := next(consumer)
		home, known := homes[message.Key()]
		expect(!known || home == message.ID().PartitionIdx(), "key %s is in two partitions", message.Key())
		homes[message.Key()] = message.ID().PartitionIdx()
		done(consumer.Ack(message))
	}
	expect(len(homes) == 20, "%d keys", len(homes))
	nothingComes(consumer)
}

func (b *bench) partitioned(count int) {
	url := fmt.Sprintf("%s/admin/v2/persistent/public/default/%s/partitions", b.adminURL, b.topic)
	request := must(http.NewRequest(http.MethodPut, url, strings.NewReader(fmt.Sprint(count))))
	request.Header.Set("Content-Type", "application/json")
	answer := must(http.DefaultClient.Do(request))
	done(answer.Body.Close())
	expect(answer.StatusCode == http.StatusNoContent, "status %d", answer.StatusCode)
}

func chunks(b *bench) {
	content := make([]byte, 12<<20)
	must(rand.Read(content))
	consumer := b.consumer(pulsar.ConsumerOptions{})
	producer := b.producer(pulsar.ProducerOptions{EnableChunking: true, DisableBatching: true})
	must(producer.Send(context.Background(), &pulsar.ProducerMessage{Payload: content}))
	message := next(consumer)
	expect(bytes.Equal(message.Payload(), content), "%d other bytes", len(message.Payload()))
	done(consumer.Ack(message))
}

func indexes(b *bench) {
	consumer := b.consumer(pulsar.ConsumerOptions{})
	publish(b.producer(pulsar.ProducerOptions{DisableBatching: true}), 0, 3, nil)
	publish(b.producer(pulsar.ProducerOptions{BatchingMaxMessages: 4}), 3, 8, nil)
	for number := range 11 {
		message := next(consumer)
		expect(message.Index() != nil, "no index")
		expect(*message.Index() == uint64(number), "index %d instead of %d", *message.Index(), number)
		expect(message.BrokerPublishTime() != nil, "no broker timestamp")
	}
}

func properties(b *bench) {
	consumer := b.consumer(pulsar.ConsumerOptions{})
	at := time.UnixMilli(1_700_000_000_000)
	must(b.producer(pulsar.ProducerOptions{Name: "named"}).Send(context.Background(), &pulsar.ProducerMessage{
		Payload: []byte("x"), Key: "key", OrderingKey: "order", EventTime: at, Properties: map[string]string{"a": "ü"},
	}))
	message := next(consumer)
	expect(message.Key() == "key" && message.OrderingKey() == "order", "keys")
	expect(message.EventTime().Equal(at), "event time %v", message.EventTime())
	expect(message.Properties()["a"] == "ü", "properties %v", message.Properties())
	expect(message.ProducerName() == "named", "producer name %s", message.ProducerName())
}

func accessModes(b *bench) {
	other := connect(b.pulsarURL)
	defer other.Close()
	exclusive := pulsar.ProducerOptions{Topic: b.topic, ProducerAccessMode: pulsar.ProducerAccessModeExclusive}
	holder := b.producer(exclusive)
	_, err := other.CreateProducer(exclusive)
	expect(err != nil && strings.Contains(err.Error(), "ProducerFenced"), "instead of ProducerFenced: %v", err)
	_, err = other.CreateProducer(pulsar.ProducerOptions{Topic: b.topic})
	expect(err != nil && strings.Contains(err.Error(), "ProducerBusy"), "instead of ProducerBusy: %v", err)
	granted := make(chan error)
	go func() {
		_, err := other.CreateProducer(pulsar.ProducerOptions{
			Topic: b.topic, ProducerAccessMode: pulsar.ProducerAccessModeWaitForExclusive,
		})
		granted <- err
	}()
	publish(holder, 0, 10, nil)
	holder.Close()
	done(<-granted)
}

func unsubscribe(b *bench) {
	options := pulsar.ConsumerOptions{Type: pulsar.Shared}
	first, second := b.consumer(options), b.consumer(options)
	expect(first.Unsubscribe() != nil, "unsubscribed although another consumer is connected")
	second.Close()
	done(first.Unsubscribe())
	consumer := must(b.client.Subscribe(pulsar.ConsumerOptions{Topic: b.topic, SubscriptionName: "s"}))
	nothingComes(consumer)
}

func httpLookup(b *bench) {
	client := connect(b.adminURL)
	defer client.Close()
	b.partitioned(2)
	over := &bench{b.pulsarURL, b.adminURL, client, b.topic}
	consumer := over.consumer(pulsar.ConsumerOptions{})
	publish(over.producer(pulsar.ProducerOptions{}), 0, 10, func(int) string { return "one" })
	receive(consumer, 0, 10)
}

func nonPersistent(b *bench) {
	b.topic = "non-persistent://public/default/" + b.topic
	producer := b.producer(pulsar.ProducerOptions{})
	publish(producer, 0, 10, nil)
	consumer := b.consumer(pulsar.ConsumerOptions{})
	publish(producer, 10, 100, nil)
	receive(consumer, 10, 100)
}

func zeroQueue(b *bench) {
	options := pulsar.ConsumerOptions{Type: pulsar.Shared, EnableZeroQueueConsumer: true}
	first, second := b.consumer(options), b.consumer(options)
	publish(b.producer(pulsar.ProducerOptions{DisableBatching: true}), 0, 10, nil)
	for number := 0; number < 10; number += 2 {
		receive(first, number, 1)
		receive(second, number+1, 1)
	}
}

// compaction: the latest message of each key for a reader, an exclusive consumer and a table view.
func compaction(b *bench) {
	// A topic with a schema, because the table view has one: it would be refused where messages without a schema are.
	text := pulsar.NewStringSchema(nil)
	publish(b.producer(pulsar.ProducerOptions{BatchingMaxMessages: 7, Schema: text}), 0, 100, func(number int) string { return fmt.Sprint(number % 10) })
	url := fmt.Sprintf("%s/admin/v2/persistent/public/default/%s/compaction", b.adminURL, b.topic)
	answer := must(http.DefaultClient.Do(must(http.NewRequest(http.MethodPut, url, nil))))
	done(answer.Body.Close())
	expect(answer.StatusCode == http.StatusNoContent, "status %d", answer.StatusCode)
	waitUntil(func() bool {
		answer := must(http.Get(url))
		defer answer.Body.Close()
		text := must(io.ReadAll(answer.Body))
		return strings.Contains(string(text), "SUCCESS")
	})
	publish(b.producer(pulsar.ProducerOptions{Schema: text}), 100, 1, func(int) string { return "3" })
	reader := must(b.client.CreateReader(pulsar.ReaderOptions{
		Topic: b.topic, StartMessageID: pulsar.EarliestMessageID(), ReadCompacted: true,
	}))
	defer reader.Close()
	number := 90
	for reader.HasNext() {
		message := must(reader.Next(context.Background()))
		// This client delivers the empty places of a batch too, from Apache's broker as well.
		if len(message.Payload()) > 0 {
			expect(bytes.Equal(message.Payload(), body(number)), "%s instead of %d", message.Payload(), number)
			number++
		}
	}
	expect(number == 101, "the reader ended at %d", number)
	consumer := b.consumer(pulsar.ConsumerOptions{Type: pulsar.Exclusive, ReadCompacted: true})
	for number := 90; number < 101; {
		if message := next(consumer); len(message.Payload()) > 0 {
			expect(bytes.Equal(message.Payload(), body(number)), "the consumer got %s, not %d", message.Payload(), number)
			number++
		}
	}
	view := must(b.client.CreateTableView(pulsar.TableViewOptions{
		Topic: b.topic, Schema: text, SchemaValueType: stringType,
	}))
	defer view.Close()
	expect(view.Size() == 10, "%d keys", view.Size())
	expect(*view.Get("3").(*string) == string(body(100)), "the view has another value")
}

func tableView(b *bench) {
	text := pulsar.NewStringSchema(nil)
	producer := b.producer(pulsar.ProducerOptions{Schema: text})
	publish(producer, 0, 100, func(number int) string { return fmt.Sprint(number % 10) })
	view := must(b.client.CreateTableView(pulsar.TableViewOptions{
		Topic: b.topic, Schema: text, SchemaValueType: stringType,
	}))
	defer view.Close()
	waitUntil(func() bool { value, _ := view.Get("3").(*string); return value != nil && *value == string(body(93)) })
}
