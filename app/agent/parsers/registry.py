"""Which parser reads the text of which type of agent."""

from collections.abc import Mapping

from app.agent.parsers.port import TextParser
from app.agent.parsers.react import ReactParser
from app.agent.parsers.react_json import ReactJsonParser
from app.agent.parsers.self_ask import SelfAskParser
from app.agent.parsers.structured_chat import StructuredChatParser
from app.agent.parsers.xml import XmlParser

PARSERS: Mapping[str, TextParser] = {
    "react": ReactParser(),
    "react_json": ReactJsonParser(),
    "structured_chat": StructuredChatParser(),
    "xml": XmlParser(),
    "self_ask": SelfAskParser(),
}
"""By the agent's `type`. A `self_ask` agent makes its own, with the name of its tool."""
