// Runs of a Runwire server, for web pages: post one and follow it through lost connections; cancel it.
// Uses only what browsers and Node have: fetch, streams, AbortController.

const ATTEMPTS = 6; // in a row without a new event, then it gives up
const FIRST_PAUSE_MS = 500;
const LAST_PAUSE_MS = 8000;
const LONGEST_RETRY_AFTER_MS = 60_000;
const SILENCE_MS = 30_000; // the server gives a sign of life every 10 s; a laptop that slept has dead connections
const AGAIN = new Set([408, 429, 502, 503, 504]);

/** The server refused. `status`, `code` and `detail` are those of its problem document. */
export class Refused extends Error {
  constructor(status, problem, retryAfter) {
    super(problem.detail ?? `The server answered ${status}.`);
    this.name = "Refused";
    this.status = status;
    this.code = problem.code ?? null;
    this.requestId = problem.request_id ?? null;
    this.retryAfterMs = Number(retryAfter) * 1000 || 0;
  }
}

/** The stream could not be taken up again. The run goes on: `follow({ …, runId, after: lastId })` takes it up later. */
export class Lost extends Error {
  constructor(cause, runId, lastId) {
    super(runId ? "The connection was lost." : "No server answers there, or it does not take this page's origin.", { cause });
    this.name = "Lost";
    this.runId = runId;
    this.lastId = lastId;
  }
}

/**
 * Post a run (`body`: what `POST /runs` takes) or follow one there is (`runId`, `after`), and tell each of its events once,
 * in order: `onEvent({ id, event, data })`. A lost connection is taken up again where it was; `onLost({ attempt, pauseMs })`
 * says so before each pause. Resolves with `{ runId, lastId, status }` when the run has ended or waits for somebody.
 *
 * `signal`: aborting leaves the stream, and the promise rejects with its reason; the run goes on (see `cancel`).
 * `pause(attempt)`: milliseconds before the next attempt; `silenceMs`: after how long without a byte a connection is given up.
 * Rejects with `Refused`, `Lost`, or what `onEvent` throws.
 */
export async function follow({
  url, key, body, runId, after = 0, onEvent, onLost, signal, pause = pauseMs, silenceMs = SILENCE_MS,
}) {
  const run = { runId, lastId: after, status: null, over: false, types: body?.stream?.join(",") };
  const post = body && { body: JSON.stringify(body), key: newKey() }; // one key: a repeated POST makes no second run
  let failed = 0;
  while (!run.over) {
    const before = run.lastId;
    try {
      await oneConnection(url, key, post, run, onEvent, signal, silenceMs);
    } catch (error) {
      signal?.throwIfAborted();
      if (run.over && error instanceof Cut) break; // it was cut after the last event
      if (!(error instanceof Cut || (error instanceof Refused && AGAIN.has(error.status)))) throw error;
      if (run.lastId > before) failed = 0;
      failed += 1;
      const asked = error.retryAfterMs ?? 0;
      if (failed >= ATTEMPTS || asked > LONGEST_RETRY_AFTER_MS) {
        throw error instanceof Refused ? error : new Lost(error.cause ?? error, run.runId, run.lastId);
      }
      const wait = Math.max(pause(failed), asked);
      onLost?.({ attempt: failed, pauseMs: wait });
      await sleep(wait, signal);
    }
  }
  return { runId: run.runId, lastId: run.lastId, status: run.status };
}

/** Stop a run. Resolves with the Run as it is now, which may still say `running`. */
export async function cancel({ url, key, runId, signal }) {
  const response = await fetch(`${base(url)}/runs/${encodeURIComponent(runId)}/cancel`, {
    ...OPTIONS, method: "POST", headers: authorization(key), signal,
  });
  if (!response.ok) throw await refusal(response);
  return response.json();
}

// --- one connection -------------------------------------------------------------------------------------------------

// No cookies, no cache, and no redirect: the key goes to this address and to no other.
const OPTIONS = { cache: "no-store", credentials: "omit", redirect: "error", referrerPolicy: "no-referrer" };

/** The connection ended before the stream did. */
class Cut extends Error {}

async function oneConnection(url, key, post, run, onEvent, signal, silenceMs) {
  const connection = new AbortController();
  const leave = () => connection.abort(signal.reason);
  signal?.throwIfAborted();
  signal?.addEventListener("abort", leave, { once: true });
  let silence;
  const alive = () => {
    clearTimeout(silence);
    silence = setTimeout(() => connection.abort(new Error("The server is silent.")), silenceMs);
  };
  try {
    alive();
    const response = await cutOtherwise(open(url, key, post, run, connection.signal));
    if (response.status === 204) {
      run.over = true; // there is no more
      return;
    }
    if (!response.ok) throw await refusal(response);
    if (!response.headers.get("Content-Type")?.startsWith("text/event-stream")) {
      throw new TypeError("What answers there is no Runwire server.");
    }
    run.runId ??= response.headers.get("Content-Location")?.split("/").pop();
    const reader = response.body.getReader();
    const decoder = new TextDecoder();
    let text = "";
    for (;;) {
      const { done, value } = await cutOtherwise(reader.read());
      if (done) break;
      alive();
      text += decoder.decode(value, { stream: true });
      const blocks = text.split("\n\n");
      text = blocks.pop(); // not whole yet
      for (const block of blocks) take(block, run, onEvent);
    }
    // It ends cleanly after `end`, and when the run waits for somebody. Everything else is a cut.
    run.over ||= run.status === "interrupted";
    if (!run.over) throw new Cut("The stream stopped before its end.");
  } finally {
    clearTimeout(silence);
    signal?.removeEventListener("abort", leave);
    connection.abort(); // also when `onEvent` threw: nobody reads on
  }
}

function open(url, key, post, run, signal) {
  const headers = { ...authorization(key), Accept: "text/event-stream" };
  if (run.runId) {
    if (run.lastId) headers["Last-Event-ID"] = String(run.lastId);
    const query = run.types ? `?stream=${encodeURIComponent(run.types)}` : "";
    return fetch(`${base(url)}/runs/${encodeURIComponent(run.runId)}/stream${query}`, { ...OPTIONS, headers, signal });
  }
  if (!post) throw new TypeError("follow() needs a body or a runId");
  headers["Content-Type"] = "application/json";
  headers["Idempotency-Key"] = post.key;
  return fetch(`${base(url)}/runs/stream`, { ...OPTIONS, method: "POST", headers, body: post.body, signal });
}

function take(block, run, onEvent) {
  const fields = {};
  for (const line of block.split("\n")) {
    const at = line.indexOf(": ");
    if (at > 0) fields[line.slice(0, at)] = line.slice(at + 2); // a comment begins with the colon
  }
  const id = Number(fields.id);
  if (fields.data === undefined || id <= run.lastId) return;
  if (!run.types && id !== run.lastId + 1) throw new Cut(`Event ${run.lastId + 1} was left out.`);
  const data = JSON.parse(fields.data);
  run.lastId = id;
  if (fields.event === "run" || fields.event === "end") {
    run.runId = data.run_id;
    run.status = data.status;
    run.over = fields.event === "end";
  }
  onEvent({ id, event: fields.event, data });
}

// --- small parts ----------------------------------------------------------------------------------------------------

async function cutOtherwise(promise) {
  try {
    return await promise;
  } catch (error) {
    throw new Cut(error.message, { cause: error });
  }
}

async function refusal(response) {
  const problem = await response.json().catch(() => ({})); // a proxy may answer with a page
  return new Refused(response.status, problem ?? {}, response.headers.get("Retry-After"));
}

function base(url) {
  return url.replace(/\/+$/, "");
}

function authorization(key) {
  return key ? { Authorization: `Bearer ${key}` } : {};
}

function newKey() {
  // crypto.randomUUID is missing in pages that came over plain HTTP from another machine
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function pauseMs(failed) {
  // doubling, and half of it chance, so that many pages do not return as one
  return Math.min(LAST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (failed - 1)) * (0.5 + Math.random() / 2);
}

function sleep(ms, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(done, ms);
    function done() {
      signal?.removeEventListener("abort", left);
      resolve();
    }
    function left() {
      clearTimeout(timer);
      reject(signal.reason);
    }
    signal?.addEventListener("abort", left, { once: true });
  });
}
