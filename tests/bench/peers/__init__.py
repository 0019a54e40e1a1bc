"""Identity models behind the other servers of the protocol. Each module is a script, run by the Python that has the server installed.

They import nothing of this package, nor of each other, and take two ports: for REST and for gRPC. The servers run in their own
process where they can, and without access logs, as ours does.
"""
