"""Certificates of an authority of our own, for 127.0.0.1."""

import trustme


def certificate(folder):
    """(chain, private key, the authority's certificate): PEM files in `folder`."""
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    chain, key, ca = folder / "chain.pem", folder / "key.pem", folder / "ca.pem"
    chain.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    ca.write_bytes(authority.cert_pem.bytes())
    return chain, key, ca
