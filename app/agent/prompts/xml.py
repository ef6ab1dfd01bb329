"""The prompt of an XML agent."""

from app.agent.prompts.text_prompt import text_prompt

PROMPT = text_prompt(
    """Help the user as well as you can. These tools are at hand:

{tools}

To use one, write its name and its input in these two elements, then stop:

<tool>name of the tool</tool><tool_input>what the tool is given</tool_input>

Its result then stands in an <observation> element. Never write one yourself. When you can answer, write the answer in one element:

<final_answer>the answer for the user</final_answer>

The user says: {input}

{agent_scratchpad}""",
    required=("tools", "agent_scratchpad"),
    stop="</tool_input>",
)
