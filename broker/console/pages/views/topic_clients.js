/**
 * Tables of a topic's producers and consumers.
 */

import { h, timeElement } from "../dom/element.js";
import { Table } from "../dom/table.js";
import { byteRate, count, rate } from "../format/numbers.js";
import { ago, moment } from "../format/times.js";

const connected = {
  label: "Connected", text: (one) => ago(moment(one.connectedSince), Date.now()), node: (one) => timeElement(moment(one.connectedSince)), minor: true,
};

/** Makes the table of producers. */
export function producerTable() {
  return new Table({
    caption: "Producers", stacked: true, key: (one) => `${one.name} ${one.id}`, empty: "No producers.",
    columns: [
      { label: "Producer", header: true, text: (one) => one.name },
      { label: "In", number: true, text: (one) => rate(one.messagesIn, "msg") },
      { label: "Bytes in", number: true, text: (one) => byteRate(one.bytesIn) },
      { label: "Access", text: (one) => one.accessMode, minor: true },
      { label: "Address", text: (one) => one.address, minor: true },
      { label: "Client", text: (one) => one.client ?? "", minor: true },
      connected,
    ],
  });
}

/** Makes the table of consumers, with the subscription of each. */
export function consumerTable() {
  return new Table({
    caption: "Consumers", stacked: true, key: (one) => `${one.subscription} ${one.name} ${one.id} ${one.address}`, empty: "No consumers.",
    columns: [
      { label: "Consumer", header: true, text: (one) => one.name },
      { label: "Subscription", text: (one) => one.subscription },
      { label: "Out", number: true, text: (one) => rate(one.messagesOut, "msg") },
      { label: "Permits", number: true, text: (one) => count(one.permits), title: "Messages that the consumer has asked for and not received" },
      { label: "Not acknowledged", number: true, text: (one) => count(one.unacked) },
      { label: "Blocked", text: (one) => (one.blocked ? "yes" : "no"), node: (one) => blocked(one) },
      { label: "Redelivered", number: true, minor: true, text: (one) => count(one.messagesRedelivered) },
      { label: "Address", text: (one) => one.address, minor: true },
      connected,
    ],
  });
}

/** Returns the consumers of all cursors, each with its subscription. */
export function clientsOf(cursors) {
  return cursors.flatMap((cursor) => cursor.consumers.map((one) => ({ ...one, subscription: cursor.name })));
}

function blocked(consumer) {
  if (!consumer.blocked) return h("span", { class: "quiet" }, "no");
  return h("span", { class: "chip bad", title: "It has too many messages that are not acknowledged" }, "yes");
}
