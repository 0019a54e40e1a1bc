"""What the protocol costs above a bare echo of the same bytes: real servers on loopback ports, in turns. `python -m tests.bench --help`."""
