// The REST interface, called with the login of this device. The token stays in localStorage, which belongs to this scheme, host
// and port alone.

const TOKEN = "c3po-login";

/** A refusal of the coordinator. */
export class Refused extends Error {
  /** @param {number} status @param {any} body @param {string | null} token the one that was stored when it was sent */
  constructor(status, body, token) {
    super([body.error && `${body.error}.`, body.suggestion].filter(Boolean).join("\n") || `The coordinator answered ${status}.`);
    this.status = status;
    this.token = token;
    /** @type {string} */
    this.code = body.code ?? "";
    /** @type {Record<string, string>} */
    this.details = body.details ?? {};
  }
}

/** @param {string} token */
export function keepToken(token) {
  localStorage.setItem(TOKEN, token);
}

/** Forgets a token, unless another tab has logged in since. @param {string | null} token */
export function forgetToken(token) {
  if (keptToken() === token) localStorage.removeItem(TOKEN);
}

/** Returns the token of this device; null without a login. */
export function keptToken() {
  return localStorage.getItem(TOKEN);
}

/** Returns the headers of a request by the login, if there is one. @returns {Record<string, string>} */
function credential() {
  const token = keptToken();
  return token ? { Authorization: `Bearer ${token}` } : {};
}

/**
 * Sends a request with the login.
 * @param {string} path
 * @param {RequestInit & {headers?: Record<string, string>}} options
 */
export function request(path, options = {}) {
  const headers = { ...credential(), ...options.headers };
  return fetch(path, { cache: "no-store", credentials: "omit", redirect: "error", ...options, headers });
}

/**
 * Makes a call. Returns its result. Throws a `Refused`, or an `Error` if there is no answer.
 * @param {string} method
 * @param {string} path
 * @param {object} [body]
 * @param {Record<string, string>} [headers]
 */
export async function call(method, path, body, headers = {}) {
  const typed = body ? { "Content-Type": "application/json", ...headers } : headers;
  const token = keptToken();
  let response;
  try {
    response = await request(path, { method, headers: typed, body: body && JSON.stringify(body) });
  } catch {
    throw new Error("The coordinator does not answer. Check the network and try again.");
  }
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Refused(response.status, answer, token);
  return answer.data;
}

/** Returns a key by which the coordinator recognizes a repeated request. */
export function idempotencyKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
