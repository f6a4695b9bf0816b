"""The link between edge and verifier over websockets: dialling, turns, the verifier's server."""
