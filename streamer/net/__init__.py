"""WEBSOCKETS: the realtime server; admission, health and metrics. Sessions come in through one factory."""
