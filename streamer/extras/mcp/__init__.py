"""`streamer mcp`: how people speak, as tools of the Model Context Protocol.

    options.py  the options of the command
    server.py   the tools, and the fence of allowed folders

The package `mcp` is imported only when the command runs.
"""
