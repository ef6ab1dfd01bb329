// Runs examples/browser/runwire.js as a page would: `node follow.mjs FOLDER OPTIONS`. One JSON line for each thing that happens.
// OPTIONS: what follow() takes, and `leaveAt`, `cancelAt`, `throwAt`: the type of the event at which to do that.

import { pathToFileURL } from "node:url";

const [, , folder, options] = process.argv;
const { follow, cancel } = await import(pathToFileURL(`${folder}/runwire.js`));
const { leaveAt, cancelAt, throwAt, ...given } = JSON.parse(options);

const tell = (what) => process.stdout.write(`${JSON.stringify(what)}\n`);
const leaving = new AbortController();
let cancelled = null;

function onEvent(event) {
  tell(event);
  if (event.event === leaveAt) leaving.abort(new Error("The reader left."));
  if (event.event === throwAt) throw new Error("The reader failed.");
  if (event.event === cancelAt) cancelled = cancel({ ...given, runId: event.data.run_id ?? given.runId });
}

try {
  const done = await follow({
    ...given, onEvent, signal: leaving.signal, pause: () => 1, onLost: ({ attempt }) => tell({ lost: attempt }),
  });
  tell({ done });
} catch (error) {
  tell({ error: error.name, message: error.message, status: error.status, code: error.code, lastId: error.lastId, runId: error.runId });
}
if (cancelled !== null) tell({ cancelled: (await cancelled).id });
