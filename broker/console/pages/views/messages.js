/**
 * Messages as cards: id, key, times and properties, and the payload as its schema decodes it, as text, or as bytes.
 */

import { h, timeElement } from "../dom/element.js";
import { facts } from "../dom/parts.js";
import { bytes } from "../format/numbers.js";

const BYTES_SHOWN_MAX = 512;
const BYTES_PER_LINE = 16;

/** Makes a card for each message; `more`: the answer has not all of them. */
export function messageCards(messages, more = false) {
  return [...messages.map(card), more ? h("p", { class: "quiet" }, "There are more messages, which are not shown.") : null];
}

function card(message) {
  if (!message.publishTimeMs) return h("article", { class: "message" }, h("h4", {}, `${message.ledgerId}:${message.entryId}`), h("p", { class: "error" }, message.why));
  const inBatch = message.batchIndex >= 0 ? `:${message.batchIndex}` : "";
  const properties = Object.entries(message.properties ?? {});
  return h("article", { class: "message" },
    h("h4", {}, `${message.ledgerId}:${message.entryId}${inBatch}`),
    facts([
      ["key", message.key === null ? null : h("code", {}, message.key)],
      ["published", timeElement(message.publishTimeMs)],
      ["event time", message.eventTimeMs ? timeElement(message.eventTimeMs) : null],
      ["deliver at", message.deliverAtMs ? timeElement(message.deliverAtMs) : null],
      ["producer", `${message.producer}, number ${message.sequenceId}`],
      ["size", bytes(message.bytes)],
      ["batch", message.batchSize > 1 ? `${message.batchSize} messages` : null],
      ["schema", message.schema],
      ...properties.map(([name, value]) => [`property ${name}`, h("code", {}, value)]),
    ]),
    payload(message));
}

function payload(message) {
  const why = message.why ? h("p", { class: "quiet" }, message.why) : null;
  // The broker's own text: as a value of this language, a whole number above 2^53 would be rounded.
  if (message.decodedText) return block("Decoded value", message.decodedText);
  if (message.text !== null && message.text !== undefined) return [block("Payload as text", message.text), why];
  return [block("Payload as bytes", hexDump(message.base64)), why];
}

function block(label, text) {
  return h("pre", { tabindex: "0", role: "region", "aria-label": label }, text);
}

/**
 * Writes bytes as lines of hexadecimal numbers with their characters.
 * @param {string} base64
 */
export function hexDump(base64) {
  const data = atob(base64);
  const lines = [];
  for (let start = 0; start < Math.min(data.length, BYTES_SHOWN_MAX); start += BYTES_PER_LINE) {
    const part = data.slice(start, start + BYTES_PER_LINE);
    const hex = [...part].map((one) => one.charCodeAt(0).toString(16).padStart(2, "0")).join(" ");
    const text = part.replace(/[^\x20-\x7e]/g, ".");
    lines.push(`${start.toString(16).padStart(4, "0")}  ${hex.padEnd(BYTES_PER_LINE * 3 - 1)}  ${text}`);
  }
  if (data.length > BYTES_SHOWN_MAX) lines.push(`… ${data.length - BYTES_SHOWN_MAX} more bytes`);
  return lines.join("\n");
}
