// Producers and consumers over Pulsar's WebSocket API, which needs no compiled client.

import { once } from "node:events";
import WebSocket from "ws";

/** A session whose answers and messages are taken one by one. */
class Session {
  #socket;
  #came = [];
  #waiting = [];
  #end;

  static async open(url) {
    const session = new this();
    session.#socket = new WebSocket(url);
    session.#socket.on("message", (data) => {
      const found = JSON.parse(data);
      const taker = session.#waiting.shift();
      if (taker) taker(found);
      else session.#came.push(found);
    });
    session.#socket.on("close", (code, reason) => {
      session.#end = { result: "closed", errorMsg: `${code} ${reason}` };
      for (const taker of session.#waiting.splice(0)) taker(session.#end);
    });
    await once(session.#socket, "open");
    return session;
  }

  send(value) {
    this.#socket.send(JSON.stringify(value));
  }

  /** Resolves to the next answer or message, or to `{ result: "closed" }`; to undefined if none comes in time. */
  next(waitMs = 30_000) {
    if (this.#came.length) return Promise.resolve(this.#came.shift());
    if (this.#end) return Promise.resolve(this.#end);
    return new Promise((resolve) => {
      const timer = setTimeout(() => {
        this.#waiting = this.#waiting.filter((taker) => taker !== take);
        resolve(undefined);
      }, waitMs);
      const take = (found) => {
        clearTimeout(timer);
        resolve(found);
      };
      this.#waiting.push(take);
    });
  }

  async close() {
    if (this.#end) return;
    const closed = once(this.#socket, "close");
    this.#socket.close();
    await closed;
  }
}

export class Producer extends Session {
  static to(broker, namespace, topic) {
    return this.open(`${broker.adminUrl.replace("http", "ws")}/ws/v2/producer/persistent/${namespace}/${topic}`);
  }

  /** Publishes a value as JSON. An Error if the broker did not store it. */
  async publish(value, options = {}) {
    this.send({ payload: Buffer.from(JSON.stringify(value)).toString("base64"), ...options });
    const answer = await this.next();
    if (answer?.result !== "ok") throw new Error(`not stored: ${answer?.errorMsg ?? "no answer"}`);
  }
}

export class Consumer extends Session {
  static of(broker, namespace, topic) {
    const place = `persistent/${namespace}/${topic}/tests?subscriptionType=Shared`;
    return this.open(`${broker.adminUrl.replace("http", "ws")}/ws/v2/consumer/${place}`);
  }

  /** Acknowledges the next message and returns its value; undefined if none comes in time. */
  async receive(waitMs) {
    const message = await this.next(waitMs);
    if (message === undefined) return undefined;
    if (message.result === "closed") throw new Error(`the session ended: ${message.errorMsg}`);
    this.send({ messageId: message.messageId });
    return JSON.parse(Buffer.from(message.payload, "base64"));
  }
}
