"""WEBSOCKETS: the realtime server, a verifier's and the link to it; admission, health, metrics. Sessions come in."""
