"""The prompt of a ReAct agent that writes its actions as JSON."""

from app.agent.prompts.text_prompt import text_prompt
from app.agent.prompts.tool_list import described_with_arguments

PROMPT = text_prompt(
    """Solve the task below step by step. These tools can help you:

{tools}

Think first, then call one tool, out of [{tool_names}], with a JSON object in a code fence:

Thought: what you know and what to do next
Action:
```json
{{"action": "the tool's name", "action_input": {{"argument": "value"}}}}
```

Then stop. The tool's result is put behind the word Observation, and you go on with your next Thought. Never write an Observation yourself.

As soon as you can answer, write this instead of an action:

Thought: why this is the answer
Final Answer: the answer to the task

The task: {input}
Thought: {agent_scratchpad}""",
    required=("tools", "tool_names", "agent_scratchpad"),
    stop="\nObservation",
    tools=described_with_arguments,
)
