"""The prompt of a ReAct agent."""

from app.agent.prompts.text_prompt import text_prompt

PROMPT = text_prompt(
    """Solve the task below step by step. These tools can help you:

{tools}

Write in exactly this form, one keyword a line:

Thought: what you know and what to do next
Action: the name of one tool, out of [{tool_names}]
Action Input: what the tool is given

Then stop. The tool's result is put behind the word Observation, and you go on with your next Thought. Never write an Observation yourself.

As soon as you can answer, write this instead of an action:

Thought: why this is the answer
Final Answer: the answer to the task

The task: {input}
Thought: {agent_scratchpad}""",
    required=("tools", "tool_names", "agent_scratchpad"),
    stop="\nObservation",
)
