#!/usr/bin/env bash
# Runwire with nothing but curl (7.82 or newer, for --json). README.md says what must be running; run it as often as you like.
set -euo pipefail

export RUNWIRE_URL="${RUNWIRE_URL:-http://127.0.0.1:8080}"
TOOL_URL="${TOOL_URL:-http://127.0.0.1:9000/add}"
: "${TOOL_SECRET:?the secret that the tool service was started with}"

# The options of all commands below: the key, where there is one, in a file, since arguments stand in the process list; and
# the end of this script when the server refuses something.
CURL_HOME=$(mktemp -d)
export CURL_HOME
trap 'rm -rf "$CURL_HOME"' EXIT
echo 'fail-with-body' > "$CURL_HOME/.curlrc"
if [[ -n ${RUNWIRE_API_KEY:-} ]]; then
  printf 'header = "Authorization: Bearer %s"\n' "$RUNWIRE_API_KEY" >> "$CURL_HOME/.curlrc"
fi
step() { printf '\n\n== %s\n\n' "$1"; }

step "1. Post a run and read its stream"
# -N: show each event as it comes. The stream ends with the event `end`.
curl -sSN "$RUNWIRE_URL/runs/stream" --json '{"agent": "demo", "input": "What is 2+3?"}'

step "2. Post a run, leave it, and resume its stream after event 3"
# 201 and Location; the run goes on by itself. Here awk hangs up after event 3, as a bad network would. Say the last id you
# have, and the stream goes on with the next: nothing is lost or repeated.
RUN=$(curl -sS -o /dev/null -D - "$RUNWIRE_URL/runs" --json '{"agent": "demo", "input": "What is 6*7?"}' |
  tr -d '\r' | awk 'tolower($1) == "location:" {print $2}')
{ curl -sN "$RUNWIRE_URL$RUN/stream" || true; } | awk -v RS= -v ORS='\n\n' '{print} /^id: 3\n/ {exit}'
curl -sSN "$RUNWIRE_URL$RUN/stream" -H "Last-Event-ID: 3"

step "3. Register a tool of your own, and call it once by hand"
# PUT registers it or replaces it; POST /tools would refuse a name that is taken. `pure`: it may be called again.
curl -sS -X PUT "$RUNWIRE_URL/tools/add" --json '{
  "name": "add", "description": "Add two numbers.", "effect": "pure",
  "parameters": {"type": "object", "required": ["a", "b"],
                 "properties": {"a": {"type": "number"}, "b": {"type": "number"}}},
  "http": {"url": "'"$TOOL_URL"'"}, "signing_secret": "'"$TOOL_SECRET"'"}' -o /dev/null -w '%{http_code}\n'
curl -sS "$RUNWIRE_URL/tools/add/invoke" --json '{"arguments": {"a": 2, "b": 3}}'

step "4. Run an agent given in the request"
# The model plays a script here, so that this works offline; with a key on the server: "model": "openai:gpt-4.1-mini".
RUN=$(curl -sS -o /dev/null -D - "$RUNWIRE_URL/runs" --json '{
  "input": "What is 20 + 22?",
  "agent": {"tools": ["add"], "instructions": "Use the tools.", "model": {"provider": "scripted", "script": [
    {"tool_calls": [{"name": "add", "args": {"a": 20, "b": 22}}]},
    {"content": "It is 42."}]}}}' | tr -d '\r' | awk 'tolower($1) == "location:" {print $2}')
curl -sS "$RUNWIRE_URL$RUN/wait?timeout_s=30"

step "5. Read its steps, and one with its whole chain"
curl -sS "$RUNWIRE_URL$RUN/steps"
echo
curl -sS "$RUNWIRE_URL$RUN/steps/1"

step "6. Send the same request twice: one run"
# For when you do not know whether the first request arrived. The second answer says Idempotency-Replayed: true.
KEY="walkthrough-$$-$RANDOM$RANDOM"
for _ in first second; do
  curl -sS -o /dev/null -D - "$RUNWIRE_URL/runs" -H "Idempotency-Key: $KEY" --json '{"agent": "demo", "input": "Once."}' |
    grep -iE '^(location|idempotency-replayed):'
done

step "7. Cancel a run"
# This model would begin to speak after ten minutes. wait=true: answer when it has stopped.
RUN=$(curl -sS -o /dev/null -D - "$RUNWIRE_URL/runs" --json '{
  "input": "Think.",
  "agent": {"model": {"provider": "scripted", "script": [{"content": "Done.", "delay_ms": 600000}]}}}' |
  tr -d '\r' | awk 'tolower($1) == "location:" {print $2}')
curl -sS -X POST "$RUNWIRE_URL$RUN/cancel?wait=true"

step "8. What a refusal looks like: a problem document (RFC 9457)"
# `code` is for programs, `errors` says where; `request_id` finds it in the server's log.
curl -sS --no-fail-with-body "$RUNWIRE_URL/runs" --json '{"agent": "nobody", "input": "hi"}'
echo
