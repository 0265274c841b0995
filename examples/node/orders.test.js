// Tests of an application against a broker that they start: npm test

import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import { Magnetar } from "./magnetar.js";
import { Consumer, Producer } from "./session.js";

const ORDER = JSON.stringify({
  type: "record",
  name: "Order",
  fields: [
    { name: "id", type: "string" },
    { name: "amount", type: "double" },
  ],
});
const BILL = JSON.stringify({ type: "record", name: "Bill", fields: [{ name: "id", type: "int" }] });

let broker;
let namespace;

before(async () => {
  broker = await Magnetar.start();
});
after(() => broker.stop());
beforeEach(async () => {
  namespace = await broker.namespace();
});

async function opened(topic) {
  return [await Consumer.of(broker, namespace, topic), await Producer.to(broker, namespace, topic)];
}

test("order arrives as it was sent", async () => {
  const [consumer, producer] = await opened("orders");
  await producer.publish({ id: "7", amount: 12.5 });
  assert.deepEqual(await consumer.receive(), { id: "7", amount: 12.5 });
  await Promise.all([consumer.close(), producer.close()]);
});

test("schema of another shape is refused", async () => {
  const path = `/admin/v2/schemas/${namespace}/orders/schema`;
  await broker.ask("POST", path, { type: "JSON", schema: ORDER, properties: {} });
  await assert.rejects(broker.ask("POST", path, { type: "JSON", schema: BILL, properties: {} }), { status: 409 });
  assert.equal(JSON.parse((await broker.ask("GET", path)).data).name, "Order");
});

test("reminder comes after an hour", async () => {
  const [consumer, producer] = await opened("reminders");
  await producer.publish("not paid", { deliverAfterMs: 3_600_000 });
  await broker.advance(0.9);
  assert.equal(await consumer.receive(200), undefined);
  await broker.advance(0.1);
  assert.equal(await consumer.receive(), "not paid");
  await Promise.all([consumer.close(), producer.close()]);
});

test("order survives a full disk", async () => {
  const [consumer, producer] = await opened("orders");
  const fired = await broker.fault({ on: "STORAGE_ADD", do: "refuse", error: "FullDisk" });
  // The broker closes the topic whose entry was not stored, and the session with it: the application connects again.
  await assert.rejects(producer.publish("one coffee"), /not stored/);
  const second = await Producer.to(broker, namespace, "orders");
  await second.publish("one coffee");
  assert.equal(await fired(), 1);
  assert.equal(await consumer.receive(), "one coffee");
  await Promise.all([consumer.close(), second.close()]);
});

test("orders expire after a week", async () => {
  await broker.ask("POST", `/admin/v2/namespaces/${namespace}/messageTTL`, 7 * 24 * 3600);
  const [consumer, producer] = await opened("orders");
  await consumer.close();
  await producer.publish("one coffee");
  assert.equal(await backlog("orders"), 1);
  await broker.advance(8 * 24);
  assert.equal(await backlog("orders"), 0);
  await producer.close();
});

async function backlog(topic) {
  const stats = await broker.ask("GET", `/admin/v2/persistent/${namespace}/${topic}/stats`);
  return stats.subscriptions.tests.msgBacklog;
}
