"""The desk as an MCP server: an agent's task as tools. `python -m plans.mcp` serves one over stdio."""
