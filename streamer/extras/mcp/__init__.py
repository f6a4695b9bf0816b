"""`streamer mcp`: how people speak, as tools of the Model Context Protocol."""
