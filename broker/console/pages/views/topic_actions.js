/**
 * Dialogs that change a topic or a subscription: send, skip, reset, expire, delete. Each returns true after the action.
 */

import { openForm } from "../dom/dialog.js";
import { h } from "../dom/element.js";
import { change, get } from "../shell/api.js";
import { format, topicParts, topicPath } from "../shell/routes.js";

const PARTITION = /-partition-\d+$/;

/** Sends one message. A topic with a schema gets the newest version of it. */
export async function sendMessage(app, topic) {
  let schema = null;
  try {
    schema = await newestSchema(topic);
  } catch (error) {
    app.notices.failure("The schema cannot be read", error);
    return false;
  }
  const note = schema ? `The payload is encoded by the topic's ${schema.type} schema, version ${schema.version}.` : "The payload is sent as text.";
  return openForm({
    title: "Send a message", intro: h("p", {}, note), action: "Send",
    fields: [
      { name: "payload", label: "Payload", type: "textarea", hint: schema ? "The value as JSON, or the plain text of a simple type" : "" },
      { name: "key", label: "Key", optional: true },
      { name: "properties", label: "Properties", type: "textarea", optional: true, hint: "One name=value per line" },
    ],
    perform: async ({ payload, key, properties }) => {
      const message = { payload, ...(key ? { key } : {}), properties: readProperties(properties) };
      const version = schema ? { schemaVersion: schema.version } : {};
      const answer = await change("POST", `/topics/${topicPath(topic)}`, { producerName: "console", ...version, messages: [message] });
      const [outcome] = answer.messagePublishResults;
      if (!outcome.messageId) throw new Error(outcome.errorMsg || "The broker did not store the message");
      app.notices.success(`Sent ${outcome.messageId}`);
    },
  });
}

/** Returns type and version of the topic's newest schema, null for a topic without one. */
async function newestSchema(topic) {
  const [, ...parts] = topicParts(topic.replace(PARTITION, ""));
  // The request for one schema answers 404 if there is none, which is no error here.
  const { getSchemaResponses: versions } = await get(`/admin/v2/schemas/${parts.map(encodeURIComponent).join("/")}/schemas`);
  const newest = versions.at(-1);
  return newest ? { type: newest.type, version: newest.version } : null;
}

/** Reads "name=value" lines. Error for a line without "=". */
export function readProperties(text) {
  const lines = text.split("\n").map((line) => line.trim()).filter(Boolean);
  return Object.fromEntries(lines.map((line) => {
    const place = line.indexOf("=");
    if (place < 1) throw new Error(`${line}: write name=value`);
    return [line.slice(0, place), line.slice(place + 1)];
  }));
}

/** Acknowledges the next messages, or all. */
export function skip(app, topic, subscription) {
  return openForm({
    title: `Skip messages of ${subscription}`, action: "Skip", danger: true,
    intro: h("p", {}, "Skipped messages count as acknowledged and are not delivered."),
    fields: [
      { name: "which", label: "Which", type: "select", value: "some", options: [["some", "The next ones"], ["all", "All that are stored now"]] },
      { name: "number", label: "Number of entries", type: "number", min: 1, value: 1, hint: "A batch counts as one entry; if fewer are left, all of them are skipped." },
    ],
    perform: async ({ which, number }) => {
      const path = subscriptionPath(topic, subscription);
      await change("POST", which === "all" ? `${path}/skip_all` : `${path}/skip/${Number(number)}`);
      app.notices.success(which === "all" ? `Skipped all messages of ${subscription}` : `Skipped up to ${number} entries of ${subscription}`);
    },
  });
}

/** Moves a subscription to a time or to a position. */
export function reset(app, topic, subscription) {
  return openForm({
    title: `Reset ${subscription}`, action: "Reset", danger: true,
    intro: h("p", {}, "The subscription delivers again from the chosen place. Its consumers reconnect."),
    fields: [
      {
        name: "to", label: "To", type: "select", value: "earliest",
        options: [["earliest", "The oldest message"], ["latest", "Behind the newest message"], ["time", "A time"], ["position", "A position"]],
      },
      { name: "time", label: "Time", type: "datetime-local", optional: true, step: 1, hint: "In the time zone of this browser; the first message published since then" },
      { name: "position", label: "Position", optional: true, placeholder: "3:20", hint: "ledger:entry, the next message to be delivered" },
    ],
    perform: async ({ to, time, position }) => {
      await change("POST", ...resetRequest(subscriptionPath(topic, subscription), to, time, position));
      app.notices.success(`Reset ${subscription}`);
    },
  });
}

/** Returns path and body of the request of a reset. Error for a time or position that cannot be read. */
export function resetRequest(path, to, time, position) {
  if (to === "time") {
    const ms = Date.parse(time);
    if (!Number.isFinite(ms)) throw new Error("Choose a time");
    return [`${path}/resetcursor/${ms}`, undefined];
  }
  if (to === "position") {
    const found = /^\s*(\d+):(\d+)\s*$/.exec(position);
    if (!found) throw new Error(`${position || "An empty position"}: write ledger:entry`);
    return [`${path}/resetcursor`, { ledgerId: Number(found[1]), entryId: Number(found[2]) }];
  }
  return [`${path}/resetcursor`, to];
}

/** Acknowledges old messages. */
export function expire(app, topic, subscription) {
  return openForm({
    title: `Expire messages of ${subscription}`, action: "Expire", danger: true,
    intro: h("p", {}, "Messages older than this count as acknowledged."),
    fields: [{ name: "seconds", label: "Age in seconds", type: "number", min: 0, value: 3600 }],
    perform: async ({ seconds }) => {
      await change("POST", `${subscriptionPath(topic, subscription)}/expireMessages/${Number(seconds)}`);
      app.notices.success(`Expired messages of ${subscription} older than ${seconds} s`);
    },
  });
}

/** Deletes a subscription after its name was typed. */
export function deleteSubscription(app, topic, subscription) {
  return openForm({
    title: `Delete ${subscription}`, action: "Delete subscription", danger: true,
    intro: h("p", {}, "Its position is lost. A subscription with consumers is deleted only if they are disconnected."),
    fields: [
      { name: "typed", label: `Type ${subscription} to confirm`, mustEqual: subscription },
      { name: "force", label: "Consumers", type: "select", value: "false", options: [["false", "Refuse while there are some"], ["true", "Disconnect them"]] },
    ],
    perform: async ({ force }) => {
      await change("DELETE", `${subscriptionPath(topic, subscription)}?force=${force}`);
      app.notices.success(`Deleted ${subscription}`);
    },
  });
}

/** Deletes a topic after its own name was typed; for a partition, the whole partitioned topic. */
export async function deleteTopic(app, topic) {
  const whole = topic.replace(PARTITION, "");
  const name = whole.slice(whole.lastIndexOf("/") + 1);
  const done = await openForm({
    title: `Delete ${name}`, action: "Delete topic", danger: true,
    intro: h("p", {}, whole === topic ? "All its messages and subscriptions are lost." : `All partitions of ${whole} are lost.`),
    fields: [
      { name: "typed", label: `Type ${name} to confirm`, mustEqual: name },
      { name: "force", label: "Clients and subscriptions", type: "select", value: "false", options: [["false", "Refuse while there are some"], ["true", "Disconnect and delete them"]] },
    ],
    perform: ({ force }) => change("DELETE", `/admin/v2/${topicPath(whole)}${whole === topic ? "" : "/partitions"}?force=${force}`),
  });
  if (!done) return;
  app.notices.success(`Deleted ${whole}`);
  app.go(format("topics"));
}

function subscriptionPath(topic, subscription) {
  return `/admin/v2/${topicPath(topic)}/subscription/${encodeURIComponent(subscription)}`;
}
