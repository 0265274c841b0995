package main

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"

	"github.com/apache/pulsar-client-go/pulsar"
)

const (
	firstOrder  = `{"type":"record","name":"Order","fields":[{"name":"number","type":"int"}]}`
	secondOrder = `{"type":"record","name":"Order","fields":[{"name":"number","type":"int"},{"name":"note","type":"string","default":""}]}`
	otherOrder  = `{"type":"record","name":"Order","fields":[{"name":"number","type":"int"},{"name":"missing","type":"long"}]}`
)

type order struct {
	Number int    `json:"number" avro:"number"`
	Note   string `json:"note" avro:"note"`
}

func init() {
	checks = append(checks,
		check{"avro_evolution", func(b *bench) {
			evolution(b, func(text string) pulsar.Schema { return pulsar.NewAvroSchema(text, nil) })
		}},
		check{"json_evolution", func(b *bench) {
			evolution(b, func(text string) pulsar.Schema { return pulsar.NewJSONSchema(text, nil) })
		}},
		check{"schema_refusals", schemaRefusals},
		check{"schema_of_a_message", schemaOfMessage},
		check{"primitive_schemas", primitiveSchemas},
	)
}

func sendOrder(b *bench, schema pulsar.Schema, value any) {
	producer := b.producer(pulsar.ProducerOptions{Schema: schema})
	defer producer.Close()
	must(producer.Send(context.Background(), &pulsar.ProducerMessage{Value: value}))
}

func versionOf(message pulsar.Message) uint64 {
	expect(len(message.SchemaVersion()) == 8, "a version of %d bytes", len(message.SchemaVersion()))
	return binary.BigEndian.Uint64(message.SchemaVersion())
}

func evolution(b *bench, schema func(string) pulsar.Schema) {
	consumer := b.consumer(pulsar.ConsumerOptions{Schema: schema(firstOrder)})
	sendOrder(b, schema(firstOrder), &order{Number: 1})
	sendOrder(b, schema(secondOrder), &order{Number: 2, Note: "n"})
	sendOrder(b, schema(firstOrder), &order{Number: 3})
	for number, version := range []uint64{0, 1, 0} {
		message := next(consumer)
		expect(versionOf(message) == version, "version %d of message %d", versionOf(message), number)
		var found order
		done(message.GetSchemaValue(&found))
		expect(found.Number == number+1, "number %d", found.Number)
	}
}

func schemaRefusals(b *bench) {
	sendOrder(b, pulsar.NewAvroSchema(firstOrder, nil), &order{Number: 1})
	for _, schema := range []pulsar.Schema{
		pulsar.NewAvroSchema(otherOrder, nil),
		pulsar.NewJSONSchema(firstOrder, nil),
		pulsar.NewStringSchema(nil),
	} {
		_, err := b.client.CreateProducer(pulsar.ProducerOptions{Topic: b.topic, Schema: schema})
		expectIncompatible(err)
		_, err = b.client.Subscribe(pulsar.ConsumerOptions{Topic: b.topic, SubscriptionName: "s", Schema: schema})
		expectIncompatible(err)
	}
}

func expectIncompatible(err error) {
	var failure *pulsar.Error
	named := err != nil && strings.Contains(err.Error(), "IncompatibleSchema")
	expect(named || errors.As(err, &failure) && failure.Result() == pulsar.SchemaFailure, "an incompatible schema: %v", err)
}

// The producer asks with GET_OR_CREATE_SCHEMA for each schema that is new to it.
func schemaOfMessage(b *bench) {
	consumer := b.consumer(pulsar.ConsumerOptions{})
	producer := b.producer(pulsar.ProducerOptions{Schema: pulsar.NewAvroSchema(firstOrder, nil)})
	send := func(text string) error {
		message := pulsar.ProducerMessage{Value: &order{Number: 1}, Schema: pulsar.NewAvroSchema(text, nil)}
		_, err := producer.Send(context.Background(), &message)
		return err
	}
	done(send(firstOrder))
	done(send(secondOrder))
	done(send(firstOrder))
	expect(send(otherOrder) != nil, "an incompatible schema was accepted")
	for _, version := range []uint64{0, 1, 0} {
		message := next(consumer)
		expect(versionOf(message) == version, "version %d", versionOf(message))
	}
}

func primitiveSchemas(b *bench) {
	base := b.topic
	for name, one := range map[string]struct {
		schema pulsar.Schema
		value  any
	}{
		"string": {pulsar.NewStringSchema(nil), "text"},
		"int8":   {pulsar.NewInt8Schema(nil), int8(1)},
		"int16":  {pulsar.NewInt16Schema(nil), int16(2)},
		"int32":  {pulsar.NewInt32Schema(nil), int32(3)},
		"int64":  {pulsar.NewInt64Schema(nil), int64(4)},
		"float":  {pulsar.NewFloatSchema(nil), float32(5)},
		"double": {pulsar.NewDoubleSchema(nil), float64(6)},
	} {
		b.topic = base + "-" + name
		consumer := b.consumer(pulsar.ConsumerOptions{Schema: one.schema})
		sendOrder(b, one.schema, one.value)
		expect(versionOf(next(consumer)) == 0, "%s has another version", name)
	}
}
