"""What the protocol costs above a bare echo of the same bytes: real servers on loopback, in turns. `python -m tests.lab.bench --help`."""
