// A broker in a process of its own, which ends with this one: it reads its standard input until the end.

import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, openSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";

const READY_WITHIN_MS = 60_000;

export class Magnetar {
  #process;
  #folder;

  /** Starts the command that the environment variable MAGNETAR names, by default `magnetar`; resolves when clients can connect. */
  static async start() {
    const broker = new Magnetar();
    broker.#folder = mkdtempSync(join(tmpdir(), "magnetar-"));
    const ready = join(broker.#folder, "ready.json");
    const logFile = join(broker.#folder, "broker.log");
    const log = openSync(logFile, "w");
    const settings = ["brokerServicePort=0", "webServicePort=0"].flatMap((setting) => ["--set", setting]);
    broker.#process = spawn(
      process.env.MAGNETAR ?? "magnetar",
      ["standalone", "--memory", "--test-faults", "--until-eof", ...settings, "--ready-file", ready],
      { stdio: ["pipe", log, log] },
    );
    const failed = new Promise((_, reject) => {
      broker.#process.once("error", reject);
      broker.#process.once("exit", (code) => reject(new Error(`the broker ended with ${code}\n${readFileSync(logFile, "utf8")}`)));
    });
    failed.catch(() => {});
    const deadline = Date.now() + READY_WITHIN_MS;
    while (!existsSync(ready)) {
      if (Date.now() > deadline) throw new Error("the broker was not ready within a minute");
      await Promise.race([pause(5), failed]);
    }
    const { pulsar, admin } = JSON.parse(readFileSync(ready, "utf8"));
    return Object.assign(broker, { pulsarUrl: pulsar, adminUrl: admin });
  }

  /** Ends the broker and waits for its end. */
  async stop() {
    const ended = new Promise((resolve) => this.#process.once("exit", resolve));
    this.#process.stdin.end();
    await ended;
    rmSync(this.#folder, { recursive: true });
  }

  /** Makes a namespace that no other test uses, and returns its name. */
  async namespace() {
    const name = `public/test-${crypto.randomUUID()}`;
    await this.ask("PUT", `/admin/v2/namespaces/${name}`, {});
    return name;
  }

  /** Moves the broker's clock ahead; resolves when everything has happened that fell due. */
  async advance(hours) {
    await this.ask("POST", "/magnetar/test/clock", { advance_ms: hours * 3_600_000 });
  }

  /** Sets a fault, such as `{ on: "ACK", do: "drop" }`; returns a function that tells how often it has happened. */
  async fault(fault) {
    const { id } = await this.ask("POST", "/magnetar/test/faults", fault);
    return async () => (await this.ask("DELETE", `/magnetar/test/faults/${id}`)).fired;
  }

  /** Sends a request to the admin port and returns the JSON of the answer. An Error with `status` for a refusal. */
  async ask(method, path, body) {
    const answer = await fetch(this.adminUrl + path, {
      method,
      headers: { "Content-Type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    const text = await answer.text();
    if (!answer.ok) throw Object.assign(new Error(`${method} ${path}: ${answer.status} ${text}`), { status: answer.status });
    return text ? JSON.parse(text) : undefined;
  }
}
