"""The prompt of a self-ask agent: it takes a question apart and asks one tool."""

from app.agent.prompts.text_prompt import text_prompt

PROMPT = text_prompt(
    """Answer the question by asking smaller ones, each about a single fact. Someone who can look facts up answers them.

Example

Question: Is the tower of Pisa taller than the one the Eiffel company built in Paris?
Follow up: How tall is the tower of Pisa?
Intermediate answer: About 57 metres.
Follow up: How tall is the Eiffel Tower?
Intermediate answer: 330 metres.
So the final answer is: No, the Eiffel Tower is far taller.

Write one line that begins with "Follow up:" and stop. Never write an intermediate answer yourself. When you know enough, write one line that begins with "So the final answer is:".

Question: {input}
{agent_scratchpad}""",
    required=("agent_scratchpad",),
    stop="\nIntermediate answer:",
    observation_prefix="\nIntermediate answer: ",
    llm_prefix="",
)
