// A tool service in Node without dependencies: verifies who calls, looks orders up, refunds them. See README.md.

import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";

const TOLERANCE_S = 5 * 60; // how old or how far ahead a signature may be
const MAX_BODY_BYTES = 1024 * 1024;

const KEY = Buffer.from((process.env.TOOL_SECRET ?? "").replace(/^whsec_/, ""), "base64");
if (KEY.length < 24) {
  console.error("TOOL_SECRET must be whsec_ followed by the base64 of at least 24 bytes");
  process.exit(2);
}

// --- the tools -----------------------------------------------------------------------------------------------------

class ToolError extends Error {
  // What the model should know: it reads `message` word for word.
  constructor(message, code) {
    super(message);
    this.code = code;
  }
}

const orders = new Map([
  ["A-17", { id: "A-17", item: "teapot", total: 40, refunded: 0 }],
  ["B-3", { id: "B-3", item: "kettle", total: 65, refunded: 0 }],
]);

function orderOf(id) {
  const order = orders.get(id);
  if (!order) throw new ToolError(`There is no order ${id}.`, "no_order");
  return order;
}

const tools = {
  "/lookup_order": { run: ({ order_id }) => ({ ...orderOf(order_id) }) },
  "/refund_order": {
    writes: true,
    run: ({ order_id, amount }) => {
      const order = orderOf(order_id);
      if (!(amount > 0)) throw new ToolError("A refund is more than 0.", "bad_amount");
      if (order.refunded + amount > order.total) {
        throw new ToolError(`Only ${order.total - order.refunded} of order ${order_id} can be refunded.`, "too_much");
      }
      order.refunded += amount;
      return { order_id, refunded: order.refunded, left: order.total - order.refunded };
    },
  },
};

// --- who calls: Standard Webhooks (https://www.standardwebhooks.com) --------------------------------------------------

function isSigned(headers, body) {
  const id = headers["webhook-id"];
  const timestamp = headers["webhook-timestamp"];
  if (!id || !/^\d{1,12}$/.test(timestamp ?? "")) return false;
  if (Math.abs(Date.now() / 1000 - Number(timestamp)) > TOLERANCE_S) return false;
  // Over the bytes as they came: JSON that was parsed and written again is other bytes.
  const expected = createHmac("sha256", KEY).update(`${id}.${timestamp}.`).update(body).digest();
  // Several signatures, separated by spaces, while a secret is being replaced: one that fits is enough.
  return (headers["webhook-signature"] ?? "").split(" ").some((entry) => {
    const [version, text] = entry.split(",");
    const given = Buffer.from(text ?? "", "base64");
    return version === "v1" && given.length === expected.length && timingSafeEqual(given, expected);
  });
}

// --- the same call again --------------------------------------------------------------------------------------------

// Answers by Idempotency-Key. In memory, so a restart forgets them and then a repeat refunds again: a real service
// writes the key and the answer to its database, in the transaction that makes the refund.
const answers = new Map();

function perform(path, key, call) {
  const tool = tools[path];
  if (!tool.writes) return answer(tool, call);
  if (!key) return [400, { detail: "a write needs an Idempotency-Key" }];
  const wanted = JSON.stringify([path, call.arguments]);
  const first = answers.get(key);
  if (first) return first.wanted === wanted ? first.answer : [422, { detail: "the key was used for another call" }];
  const made = answer(tool, call);
  answers.set(key, { wanted, answer: made });
  return made;
}

function answer(tool, call) {
  try {
    return [200, { output: tool.run(call.arguments) }];
  } catch (error) {
    if (!(error instanceof ToolError)) throw error;
    return [200, { error: { message: error.message, code: error.code, retryable: false } }];
  }
}

// --- HTTP -----------------------------------------------------------------------------------------------------------

async function bodyOf(request) {
  const parts = [];
  let size = 0;
  for await (const part of request) {
    size += part.length;
    if (size <= MAX_BODY_BYTES) parts.push(part);
  }
  return size <= MAX_BODY_BYTES ? Buffer.concat(parts) : null;
}

async function handle(request) {
  const body = await bodyOf(request);
  if (body === null) return [413, { detail: "too large" }];
  if (!isSigned(request.headers, body)) return [401, { detail: "wrong signature" }];
  const path = request.url ?? "";
  if (request.method !== "POST" || !Object.hasOwn(tools, path)) return [404, { detail: "there is no such tool" }];
  return perform(path, request.headers["idempotency-key"], JSON.parse(body).data);
}

const server = createServer(async (request, response) => {
  let status, value;
  try {
    [status, value] = await handle(request);
  } catch (error) {
    console.error(error); // for us; the caller learns nothing of it
    [status, value] = [500, { detail: "internal error" }];
  }
  response.writeHead(status, { "Content-Type": "application/json" }).end(JSON.stringify(value));
});

server.listen(Number(process.env.PORT ?? 9001), process.env.HOST ?? "127.0.0.1", () => {
  console.log(`Listening on port ${server.address().port}`);
});
process.on("SIGTERM", () => server.close());
