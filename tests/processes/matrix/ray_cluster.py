"""A local Ray cluster with the matrix's application, as a process: `python -m tests.processes.matrix.ray_cluster PORT`.

It reads one command a line, and answers each with one line:

    running         how many replicas run
    kill            kill the process of a replica, as the kernel does where memory is short; answers when it is killed
    deploy VERSION  roll out a version; answers "deployed", or how Ray says that it could not be
    end             stop the cluster

Its pipes are its life: where its standard input ends, it stops the cluster too.
"""

from __future__ import annotations

import sys

import ray
from ray import serve

from .ray_site import deployment

REPLICA = "SERVE_REPLICA::"


def running() -> int:
    [status] = serve.status().applications["default"].deployments.values()
    return int(status.replica_states.get("RUNNING", 0))


def kill() -> str:
    """Kill the first of the replicas."""
    names = [actor["name"] for actor in ray.util.list_named_actors(all_namespaces=True)]
    first = min(name for name in names if name.startswith(REPLICA))
    ray.kill(ray.get_actor(first, namespace="serve"))
    return "killed"


def deploy(version: str) -> str:
    try:
        serve.run(deployment(version))
    except RuntimeError as error:
        return " ".join(str(error).split())
    return "deployed"


def main() -> None:
    port = int(sys.argv[1])
    ray.init(num_cpus=2, object_store_memory=80 * 2**20, include_dashboard=False, log_to_driver=False)
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        serve.run(deployment("1"))
        for line in sys.stdin:
            match line.split():
                case ["running"]:
                    print(running(), flush=True)
                case ["kill"]:
                    print(kill(), flush=True)
                case ["deploy", version]:
                    print(deploy(version), flush=True)
                case ["end"]:
                    return
    finally:
        serve.shutdown()
        ray.shutdown()


if __name__ == "__main__":
    main()
