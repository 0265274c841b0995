// testcontainers for Node, which has no module for Pulsar: `node containers.js IMAGE` starts the image as its generic
// container, once for each way to wait for it, and prints a line for each: `ok NAME` or `failed NAME: REASON`.
import { GenericContainer, Wait } from "testcontainers";

const STANDALONE = "bin/apply-config-from-env.py conf/standalone.conf && bin/pulsar standalone --no-functions-worker -nss";

const WAITS = {
  health: () => Wait.forHealthCheck(),
  http: () => Wait.forHttp("/admin/v2/clusters", 8080).forResponsePredicate((body) => body === '["standalone"]'),
  log: () => Wait.forLogMessage("messaging service is ready"),
  ports: () => Wait.forListeningPorts(),
};

async function exec(container, words) {
  const { output, exitCode } = await container.exec(words);
  if (exitCode !== 0) throw new Error(`${words.join(" ")} -> ${exitCode} ${output}`);
  return output;
}

async function check(image, wait) {
  const container = await new GenericContainer(image)
    .withExposedPorts(6650, 8080)
    .withEnvironment({ PULSAR_PREFIX_maxMessageSize: "70000" })
    .withCommand(["/bin/bash", "-c", STANDALONE])
    .withWaitStrategy(wait)
    .start();
  try {
    const url = `http://${container.getHost()}:${container.getMappedPort(8080)}`;
    const answer = await fetch(`${url}/admin/v2/brokers/configuration/runtime`);
    const settings = await answer.json();
    if (settings.maxMessageSize !== "70000") throw new Error(`maxMessageSize is ${settings.maxMessageSize}`);
    await exec(container, ["bin/pulsar-client", "produce", "t", "-m", "hello"]);
    const read = await exec(container, ["bin/pulsar-client", "consume", "t", "-s", "s", "-n", "1", "-p", "Earliest"]);
    if (!read.includes("hello")) throw new Error(`received ${read}`);
  } finally {
    await container.stop();
  }
}

for (const [name, wait] of Object.entries(WAITS)) {
  const before = Date.now();
  try {
    await check(process.argv[2], wait());
    console.log(`ok ${name}`);
  } catch (error) {
    console.log(`failed ${name}: ${String(error).replaceAll("\n", " ")}`);
  }
  console.error(`${name} ${Date.now() - before} ms`);
}
