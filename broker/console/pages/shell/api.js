/**
 * Requests to the admin API with the credentials of the session. Every failure becomes an `ApiError` with the server's reason.
 */

import { authorization } from "./session.js";

/** The server refused a request, or could not be reached. */
export class ApiError extends Error {
  /**
   * @param {number} status of HTTP; 0 if no answer came
   * @param {string} reason the server's own words
   * @param {string} request method and path
   */
  constructor(status, reason, request) {
    super(status ? `${reason} (${status}, ${request})` : `${reason} (${request})`);
    this.status = status;
    this.reason = reason;
    this.request = request;
  }
}

/**
 * Asks and reads the JSON of the answer.
 * @param {string} path from the root: "/admin/v2/…"
 * @param {{signal?: AbortSignal}} [options]
 * @returns {Promise<*>}
 */
export async function get(path, options = {}) {
  return readBody(await send("GET", path, undefined, options.signal));
}

/** Changes something: POST, PUT or DELETE with a JSON body. Returns the JSON of the answer, null without one. */
export async function change(method, path, body) {
  return readBody(await send(method, path, body));
}

/** Opens a stream of server-sent events. Returns the response, whose body is still to come. */
export async function openStream(path, signal) {
  return send("GET", path, undefined, signal, "text/event-stream");
}

async function send(method, path, body, signal, accept = "application/json") {
  // A broker asks the owner of a topic for the console: a browser would not follow 307 to another broker.
  const headers = { Accept: accept, "Magnetar-Console": "1" };
  const proof = authorization();
  if (proof) headers.Authorization = proof;
  if (method !== "GET" && method !== "HEAD") headers["Content-Type"] = "application/json";
  const request = `${method} ${path}`;
  let response;
  try {
    response = await fetch(path, {
      method, headers, signal,
      body: body === undefined ? undefined : JSON.stringify(body),
      // With cookies allowed the browser would ask for a password in a window of its own after a 401. Over TLS they stay
      // allowed, because the browser sends its client certificate only then.
      credentials: location.protocol === "https:" ? "same-origin" : "omit",
      cache: "no-store",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The broker cannot be reached", request);
  }
  if (!response.ok) throw new ApiError(response.status, await reasonOf(response), request);
  return response;
}

async function readBody(response) {
  const text = await response.text();
  return text ? JSON.parse(text) : null;
}

/** Returns the server's words: the field "reason" of JSON, the text of a page, or the status line. */
async function reasonOf(response) {
  const text = await response.text();
  const kind = response.headers.get("Content-Type") ?? "";
  if (kind.includes("json")) {
    try {
      return JSON.parse(text).reason ?? text;
    } catch {
      return text;
    }
  }
  if (kind.includes("html")) {
    const page = new DOMParser().parseFromString(text, "text/html");
    return page.body.textContent.trim().replace(/\s+/g, " ") || response.statusText;
  }
  return text.trim() || response.statusText || `Status ${response.status}`;
}
