"""WEBSOCKETS: the realtime server, the verifier's, the link to it. Imports core and stages."""
