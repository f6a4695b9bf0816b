"""WEBSOCKETS: the realtime server, the verifier's server and the link to it. Imports core and
stages."""
