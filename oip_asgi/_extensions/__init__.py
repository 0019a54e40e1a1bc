"""Triton's extensions of the protocol, one file each; none knows another.

`repository`, `model_statistics` and `config` ask the server: the tables of REST and of gRPC have their rows. `classification` and
`shared_memory` give a call what it does with its response; `shared_memory` also reads inputs, and has rows. `cache` is looked up before
a call, and keeps its response. `reserved` checks the parameters to which extensions give a meaning. `unsupported` says which extensions
are refused, and why.
"""
