"""The official Python SDK against one MCP server: runs the actions given as JSON and prints what each gave as JSON.

usage: python_client.py URL MODE ACTIONS    MODE is legacy, auto or a revision. The bearer token comes from BEARER.
"""

import asyncio
import json
import os
import sys

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError


async def act(client: Client, action: dict) -> object:
    kind = action["kind"]
    if kind == "listTools":
        return await client.list_tools(cache_mode="bypass")
    if kind == "callTool":
        return await client.call_tool(action["name"], action["args"])
    if kind == "readResource":
        return await client.read_resource(action["uri"], cache_mode="bypass")
    if kind == "getPrompt":
        return await client.get_prompt(action["name"], action["args"])
    raise ValueError(f"no such action: {kind}")


async def outcome(client: Client, action: dict) -> dict:
    try:
        result = await act(client, action)
        return {"result": result.model_dump(mode="json", by_alias=True, exclude_none=True)}
    except MCPError as error:
        return {"error": {"code": error.error.code, "message": error.error.message}}


async def main(url: str, mode: str, actions: list[dict]) -> None:
    bearer = os.environ.get("BEARER")
    headers = {} if bearer is None else {"Authorization": f"Bearer {bearer}"}
    async with httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(30)) as http:
        async with Client(streamable_http_client(url, http_client=http), mode=mode) as client:
            outcomes = [await outcome(client, action) for action in actions]
            info = client.server_info
            print(
                json.dumps(
                    {
                        "version": str(client.protocol_version),
                        "server": None if info is None else info.model_dump(mode="json", exclude_none=True),
                        "outcomes": outcomes,
                    }
                )
            )


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])))
