// Requests to the server: the token in a header, entity tags for polling, and errors as one line.

const TOKEN_KEY = "etude-token";

// The start address that the command prints ends in #token=...: a fragment, which no browser sends anywhere.
export function takeToken() {
  const found = /^#token=([\w-]{8,128})$/.exec(location.hash);
  if (found) {
    localStorage.setItem(TOKEN_KEY, found[1]);
    history.replaceState(null, "", location.pathname + location.search);
  }
}

export const hasToken = () => localStorage.getItem(TOKEN_KEY) !== null;

export class RequestError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function ask(path, options = {}) {
  const token = localStorage.getItem(TOKEN_KEY);
  const headers = { ...options.headers, ...(token ? { "X-Etude-Token": token } : {}) };
  let answer;
  try {
    answer = await fetch(path, { ...options, headers, cache: "no-store", redirect: "error" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new RequestError(0, "the server does not answer; is `etude ui` still running?");
  }
  if (answer.ok || answer.status === 304) return answer;
  const said = await answer.json().catch(() => ({}));
  throw new RequestError(answer.status, String(said.error ?? `the server answered ${answer.status}`));
}

export async function getJson(path, signal) {
  return (await ask(path, { signal })).json();
}

export async function getBytes(path, signal) {
  return (await ask(path, { signal })).arrayBuffer();
}

export async function postJson(path, value = {}) {
  const body = JSON.stringify(value);
  return (await ask(path, { method: "POST", body, headers: { "Content-Type": "application/json" } })).json();
}

// Where reading needs the token too, images and videos are read by a cookie that whoever has the token gets, once a tab.
export async function openSession() {
  const token = localStorage.getItem(TOKEN_KEY);
  if (token === null || sessionStorage.getItem(TOKEN_KEY) === token) return;
  try {
    await postJson("/api/session");
    sessionStorage.setItem(TOKEN_KEY, token);
  } catch (error) {
    if (error.status === 401) localStorage.removeItem(TOKEN_KEY); // of a server that has ended
  }
}

// A resource that is asked for again and again: `read` returns null while it has not changed.
export class Polled {
  constructor(decode = (answer) => answer.json()) {
    this.decode = decode;
    this.path = null;
    this.tag = null;
  }

  async read(path, signal) {
    const headers = path === this.path && this.tag ? { "If-None-Match": this.tag } : {};
    const answer = await ask(path, { headers, signal });
    if (answer.status === 304) return null;
    const value = await this.decode(answer);
    this.path = path;
    this.tag = answer.headers.get("ETag");
    return value;
  }
}

export function query(values) {
  const words = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== null && each !== undefined && each !== "") words.append(name, each);
    }
  }
  return words.toString();
}
