"""The prompt of a structured chat agent: every turn is one JSON object."""

from app.agent.prompts.text_prompt import text_prompt
from app.agent.prompts.tool_list import described_with_arguments

PROMPT = text_prompt(
    """Help the user as well as you can. These tools are at hand, each with the schema of its arguments:

{tools}

Every reply of yours is one JSON object with two members, in a code fence, and nothing behind it. Put "action" first. Its value is one of [{tool_names}], or "Final Answer" when you can answer:

```json
{{"action": "the tool's name", "action_input": {{"argument": "value"}}}}
```

```json
{{"action": "Final Answer", "action_input": "the answer for the user"}}
```

A tool's result is put behind the word Observation. Never write an Observation yourself.

The user says: {input}

{agent_scratchpad}""",
    required=("tools", "tool_names", "agent_scratchpad"),
    stop="\nObservation",
    tools=described_with_arguments,
)
