"""The link between an edge and a verifier: dialling, the turns on it, the verifier's server.

Imports net.service, stages and core.link.
"""
