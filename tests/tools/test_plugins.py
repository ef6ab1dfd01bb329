"""Plugins: how they are found, what their schema is, and what a broken one says."""

import sys
from collections.abc import AsyncIterator, Callable
from enum import Enum
from pathlib import Path
from typing import Annotated, Literal

import pytest
from inline_snapshot import snapshot
from pydantic import Field

from app.core.plugins import PluginError, plugins_in
from app.tools.demo import DEMO_TOOLS
from app.tools.plugins import PluginSet
from app.tools.signature import read_signature
from runwire import Tool, ToolContext, tool

MODULE = '''
from runwire import tool

@tool
def one(): "First."

@tool(name="zwei", effect="read")
async def two(n: int) -> int:
    """Second.

    More on it.
    """
    return n

both = [one, two]
three = 3
'''


@pytest.fixture
def plugin_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "my_plugin.py").write_text(MODULE)
    (tmp_path / "broken_plugin.py").write_text("import not_there_at_all")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for name in ("my_plugin", "broken_plugin"):
        sys.modules.pop(name, None)
    return "my_plugin"


def test_a_module_stands_for_every_tool_in_it(plugin_module: str) -> None:
    plugins = PluginSet.load([plugin_module], entry_points=False)
    assert plugins.names == ["one", "zwei"]
    found = plugins.get("zwei")
    assert found is not None
    assert (found.definition.description, found.effect, found.idempotent) == ("Second.\n\nMore on it.", "read", True)
    assert PluginSet.load([f"{plugin_module}:two"], entry_points=False).names == ["zwei"]
    assert PluginSet.load([f"{plugin_module}:both", plugin_module], entry_points=False).names == ["one", "zwei"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("no_such_module", "cannot import 'no_such_module'"),
        ("broken_plugin", "not_there_at_all"),
        ("my_plugin:four", "has no attribute 'four'"),
        ("my_plugin:three", "no tool there"),
    ],
)
def test_a_plugin_that_cannot_be_loaded_says_which(plugin_module: str, name: str, says: str) -> None:
    assert plugin_module
    with pytest.raises(PluginError) as caught:
        plugins_in(name)
    assert says in str(caught.value)
    assert repr(name) in str(caught.value)


def _positional(a: int, /) -> None: ...
def _many(*a: int) -> None: ...
def _odd(a: int) -> None: ...
def _foreign(a: PluginSet) -> None: ...
async def _stream() -> AsyncIterator[int]:
    yield 1


_odd.__annotations__["a"] = "Undefined"
BAD: list[Callable[..., object]] = [_positional, _many, _odd, _foreign, _stream]


@pytest.mark.parametrize("function", BAD)
def test_a_signature_that_has_no_schema_is_refused_with_the_tools_name(function: Callable[..., object]) -> None:
    with pytest.raises(PluginError, match="'it'"):
        PluginSet([tool(name="it")(function)])


@pytest.mark.parametrize(
    "made",
    [
        Tool(lambda: None, name="no spaces", description=""),
        Tool(lambda: None, name="a", description="", timeout_s=0),
        Tool(lambda: None, name="a", description="", effect="x"),  # pyright: ignore[reportArgumentType]
    ],
)
def test_wrong_settings_are_refused(made: Tool[[], object]) -> None:
    with pytest.raises(PluginError):
        PluginSet([made])


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(PluginError, match="two plugin tools named 'a'"):
        PluginSet([Tool(lambda: None, name="a", description=""), Tool(lambda: None, name="a", description="")])


class Unit(Enum):
    C = "celsius"
    F = "fahrenheit"


def test_the_schema_comes_from_the_type_hints() -> None:
    async def weather(
        city: Annotated[str, Field(description="Where", min_length=1)],
        context: ToolContext,
        days: int = 1,
        unit: Unit = Unit.C,
        mode: Literal["short", "long"] | None = None,
        schema: list[str] = [],  # noqa: B006
        model_json_schema: float = 0.5,
    ) -> None: ...

    signature = read_signature(weather)
    assert (signature.context_parameter, signature.integers, signature.is_async) == ("context", ("days",), True)
    assert signature.adapter is not None
    assert signature.parameters == snapshot(
        {
            "$defs": {"Unit": {"enum": ["celsius", "fahrenheit"], "type": "string"}},
            "additionalProperties": False,
            "properties": {
                "city": {"description": "Where", "minLength": 1, "type": "string"},
                "days": {"default": 1, "type": "integer"},
                "unit": {"$ref": "#/$defs/Unit", "default": "celsius"},
                "mode": {"anyOf": [{"enum": ["short", "long"], "type": "string"}, {"type": "null"}], "default": None},
                "schema": {"items": {"type": "string"}, "type": "array"},
                "model_json_schema": {"default": 0.5, "type": "number"},
            },
            "required": ["city"],
            "type": "object",
        }
    )


def test_json_types_need_no_conversion() -> None:
    def plain(a: str, b: list[dict[str, int]], c: float | None = None, *, d: bool = True) -> None: ...

    assert read_signature(plain).adapter is None


def test_a_decorated_function_can_still_be_called() -> None:
    @tool
    def add(a: int, b: int) -> int:
        return a + b

    assert add(2, b=3) == 5


def test_the_demo_tools_load() -> None:
    plugins = PluginSet.load(also=DEMO_TOOLS)
    assert set(plugins.names) >= {"calculator", "current_time", "text_length"}
    plugins.close()
