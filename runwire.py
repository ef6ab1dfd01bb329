"""Runwire's public module for plugins: everything a tool in Python needs. What is in `app` is private to the server.

from runwire import ToolContext, ToolError, tool

@tool(effect="read")
async def lookup_order(order_id: str, context: ToolContext) -> dict[str, object]:
    '''Find an order by its id.'''
"""

from app.tools.plugin_api import Effect, Tool, ToolContext, ToolError, tool

__all__ = ["Effect", "Tool", "ToolContext", "ToolError", "tool"]
