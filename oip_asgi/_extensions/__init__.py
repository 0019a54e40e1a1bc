"""Triton's extensions of the protocol, one file each. `rows` says how the rest knows them."""
