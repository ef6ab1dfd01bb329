// The page: its fields in, the run's events out. What a server, model or tool said goes into textContent only.

import { cancel, follow } from "./runwire.js";

const part = (id) => document.getElementById(id);
const say = (text) => { part("status").textContent = text; };

let runId = null; // of the run that is shown
let spoken = null; // the message_id whose text is shown

part("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  runId = spoken = null;
  part("steps").replaceChildren();
  part("answer").textContent = "";
  part("send").disabled = true;
  say("Posting …");
  try {
    const body = { agent: part("agent").value, input: part("input").value };
    const run = await follow({ ...server(), body, onEvent: show, onLost });
    if (run.status === "interrupted") say("The run waits for somebody.");
  } catch (error) {
    say(error.code ? `${error.message} (${error.code})` : error.message);
  } finally {
    part("send").disabled = false;
    part("cancel").disabled = true;
  }
});

part("cancel").addEventListener("click", async () => {
  part("cancel").disabled = true;
  try {
    await cancel({ ...server(), runId }); // its end comes in the stream
  } catch (error) {
    say(error.message);
    part("cancel").disabled = false;
  }
});

function server() {
  return { url: part("url").value, key: part("key").value }; // the key is in its field and nowhere else
}

function onLost({ pauseMs }) {
  say(`The connection was lost; again in ${(pauseMs / 1000).toFixed(1)} s.`);
}

function show({ event, data }) {
  switch (event) {
    case "run":
      runId = data.run_id;
      part("cancel").disabled = data.status !== "running";
      break;
    case "output":
      if (data.delta.type === "text") speak(data.message_id, data.delta.text);
      break;
    case "action":
      line(data.tool_call_id).textContent = `${data.tool}(${JSON.stringify(data.tool_input)}) …`;
      break;
    case "step":
      line(data.tool_call_id).textContent =
        `${data.action.tool}(${JSON.stringify(data.action.tool_input)}) → ${data.status}: ${shown(data.observation)}`;
      break;
    case "finish":
      part("answer").textContent = shown(data.return_values.output);
      break;
    case "error":
      part("answer").textContent = `${data.message} (${data.code})`;
      break;
    case "end":
      say(`${data.status}, ${data.stop_reason}`);
      return;
  }
  say("The run is on its way.");
}

function speak(messageId, text) {
  // Another message: what the model said before its tool calls, or an answer that a crash cut off and that is void.
  if (messageId !== spoken) part("answer").textContent = "";
  spoken = messageId;
  part("answer").append(text);
}

function line(toolCallId) {
  const known = [...part("steps").children].find((item) => item.dataset.call === toolCallId);
  if (known) return known;
  const made = document.createElement("li");
  made.dataset.call = toolCallId;
  part("steps").append(made);
  return made;
}

function shown(value) {
  return typeof value === "string" ? value : JSON.stringify(value);
}
