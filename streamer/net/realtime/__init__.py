"""OpenAI Realtime over a websocket, with sessions that can be resumed."""
