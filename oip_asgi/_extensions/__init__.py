"""Triton's extensions of the protocol, one file each; none knows another.

`repository`, `model_statistics` and `config` ask the server, and `shared_memory` registers memory: each has
routes of REST and methods of gRPC, as `common` describes them. `classification` and `shared_memory` give a
call what it does with its response; `shared_memory` also reads inputs. `cache` is looked up before a call,
and keeps its response. `common` checks the parameters to which extensions give a meaning. It also says which
extensions are refused, and why: they control Triton's process, which is the application here, or GPUs.
"""
