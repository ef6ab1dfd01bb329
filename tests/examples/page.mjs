// Runs examples/browser/page.js on a stand-in for the document: `node page.mjs FOLDER FIELDS SCENARIO`. Prints what the page shows.
// FIELDS: each id of index.html with its value. SCENARIO "cancel": click Cancel as soon as a tool call is shown.

import { pathToFileURL } from "node:url";

const [, , folder, fields, scenario] = process.argv;

class Element {
  dataset = {};
  children = [];
  disabled = false;
  value = "";
  #text = "";
  #listeners = {};
  get textContent() { return this.#text; }
  set textContent(text) { this.#text = String(text); changed(); }
  set innerHTML(_) { throw new Error("innerHTML was used"); }
  append(...items) {
    for (const item of items) {
      if (item instanceof Element) this.children.push(item);
      else this.textContent += item;
    }
  }
  replaceChildren(...items) { this.children = items; }
  addEventListener(name, listener) { this.#listeners[name] = listener; }
  dispatch(name) { return this.#listeners[name]({ preventDefault() {} }); }
}

const shown = { statuses: [], answers: [] };
const elements = Object.fromEntries(
  Object.entries(JSON.parse(fields)).map(([id, value]) => [id, Object.assign(new Element(), { value })]),
);
globalThis.document = {
  getElementById: (id) => elements[id] ?? null,
  createElement: () => new Element(),
};

let clicked = null;
function changed() {
  const { status, answer, steps, cancel } = elements;
  if ((shown.statuses.at(-1) ?? "") !== status.textContent) shown.statuses.push(status.textContent);
  if ((shown.answers.at(-1) ?? "") !== answer.textContent) shown.answers.push(answer.textContent);
  if (scenario === "cancel" && steps.children.length && !cancel.disabled && !clicked) {
    clicked = Promise.resolve().then(() => cancel.dispatch("click"));
  }
}

await import(pathToFileURL(`${folder}/page.js`));
await elements.form.dispatch("submit");
await clicked;
console.log(JSON.stringify({
  ...shown,
  steps: elements.steps.children.map((item) => item.textContent),
  sendable: !elements.send.disabled,
  cancellable: !elements.cancel.disabled,
}));
