package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

func init() {
	checks = append(checks,
		check{"publish_rate", publishRate},
		check{"max_producers", maxProducers},
		check{"max_consumers", maxConsumers},
		check{"max_unacked", maxUnacked},
		check{"key_hash_ranges", keyHashRanges},
	)
}

// policy sets a policy of the topic to a JSON value; an empty value removes it.
func (b *bench) policy(word, value string) {
	method := http.MethodPost
	if value == "" {
		method = http.MethodDelete
	}
	request := must(http.NewRequest(method, b.topicURL(word), strings.NewReader(value)))
	request.Header.Set("Content-Type", "application/json")
	answer := must(http.DefaultClient.Do(request))
	done(answer.Body.Close())
	expect(answer.StatusCode < 300, "%s of %s: status %d", method, word, answer.StatusCode)
}

func (b *bench) topicURL(word string) string {
	return fmt.Sprintf("%s/admin/v2/persistent/public/default/%s/%s", b.adminURL, b.topic, word)
}

// limitedTimes is how often a connection had to wait for the topic's publish rate.
func (b *bench) limitedTimes() int {
	answer := must(http.Get(b.topicURL("stats")))
	defer answer.Body.Close()
	var stats struct {
		Times int `json:"publishRateLimitedTimes"`
	}
	done(json.Unmarshal(must(io.ReadAll(answer.Body)), &stats))
	return stats.Times
}

// publishRate: a producer above the rate waits without an error, and goes on at once when the rate is removed.
func publishRate(b *bench) {
	consumer := b.consumer(pulsar.ConsumerOptions{})
	producer := b.producer(pulsar.ProducerOptions{DisableBatching: true})
	publish(producer, 0, 1, nil)
	b.policy("publishRate", `{"publishThrottlingRateInMsg": 20}`)
	publish(producer, 1, 30, nil)
	expect(b.limitedTimes() > 0, "no message waited for its rate")
	b.policy("publishRate", "")
	before := b.limitedTimes()
	publish(producer, 31, 300, nil)
	expect(b.limitedTimes() == before, "messages wait for a rate that was removed")
	receive(consumer, 0, 331)
}

func refusedWith(err error, words string) {
	expect(err != nil, "was let in")
	expect(strings.Contains(err.Error(), words), "refused with %v", err)
}

func maxProducers(b *bench) {
	first := b.producer(pulsar.ProducerOptions{Name: "first"})
	b.policy("maxProducers", "1")
	_, err := b.client.CreateProducer(pulsar.ProducerOptions{Topic: b.topic, Name: "second"})
	refusedWith(err, "max producers")
	publish(first, 0, 1, nil)
	first.Close()
	publish(b.producer(pulsar.ProducerOptions{Name: "second"}), 1, 1, nil)
}

func maxConsumers(b *bench) {
	for _, word := range []string{"maxConsumers", "maxConsumersPerSubscription"} {
		first := b.consumer(pulsar.ConsumerOptions{Type: pulsar.Shared})
		b.policy(word, "1")
		_, err := b.client.Subscribe(pulsar.ConsumerOptions{Topic: b.topic, SubscriptionName: "s", Type: pulsar.Shared})
		refusedWith(err, "max consumers")
		first.Close()
		b.consumer(pulsar.ConsumerOptions{Type: pulsar.Shared}).Close()
		b.policy(word, "")
	}
}

// maxUnacked: a consumer gets no more messages than the limit until it has acknowledged some.
func maxUnacked(b *bench) {
	const limit = 5
	for _, word := range []string{"maxUnackedMessagesOnConsumer", "maxUnackedMessagesOnSubscription"} {
		one := &bench{b.pulsarURL, b.adminURL, b.client, b.topic + "-" + word}
		publish(one.producer(pulsar.ProducerOptions{DisableBatching: true}), 0, 4*limit, nil)
		one.policy(word, fmt.Sprint(limit))
		// The limit of a subscription is looked at after each run of messages, as in Pulsar; the queue keeps a run short.
		consumer := one.consumer(pulsar.ConsumerOptions{Type: pulsar.Shared, ReceiverQueueSize: limit})
		var held []pulsar.Message
		for range limit {
			held = append(held, next(consumer))
		}
		nothingComes(consumer)
		for _, message := range held {
			done(consumer.Ack(message))
		}
		receive(consumer, limit, 3*limit)
		consumer.Close()
	}
}

// keyHashRanges: consumers with hash ranges of their own get each key whole. This client's reader takes no range.
func keyHashRanges(b *bench) {
	halves := []*pulsar.KeySharedPolicy{
		must(pulsar.NewKeySharedPolicySticky([]int{0, 32767})),
		must(pulsar.NewKeySharedPolicySticky([]int{32768, 65535})),
	}
	var consumers []pulsar.Consumer
	for number, half := range halves {
		consumers = append(consumers, b.consumer(pulsar.ConsumerOptions{
			Name: fmt.Sprint(number), Type: pulsar.KeyShared, KeySharedPolicy: half,
		}))
	}
	_, err := b.client.Subscribe(pulsar.ConsumerOptions{
		Topic: b.topic, SubscriptionName: "s", Type: pulsar.KeyShared, KeySharedPolicy: halves[0],
	})
	refusedWith(err, "ConsumerAssignError")
	publish(b.producer(pulsar.ProducerOptions{DisableBatching: true}), 0, 200,
		func(number int) string { return fmt.Sprint(number % 20) })
	owners, last, count := map[string]int{}, map[string]int{}, [2]int{}
	for range 200 {
		var message pulsar.ConsumerMessage
		select {
		case message = <-consumers[0].Chan():
		case message = <-consumers[1].Chan():
		case <-time.After(arrives):
			panic(failure{fmt.Sprintf("only %v messages came", count)})
		}
		owner, key := 0, message.Key()
		if message.Consumer == consumers[1] {
			owner = 1
		}
		count[owner]++
		if known, found := owners[key]; found {
			expect(known == owner, "key %s went to both", key)
		}
		owners[key] = owner
		var number int
		must(fmt.Sscanf(string(message.Payload()), "message %d", &number))
		before, found := last[key]
		expect(!found || number > before, "key %s: %d after %d", key, number, before)
		last[key] = number
		done(message.Consumer.Ack(message))
	}
	expect(count[0] > 0 && count[1] > 0, "one consumer got everything: %v", count)
}
