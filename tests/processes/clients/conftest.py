"""Where a client is missing, the tests that import it are left out: kserve is for Python below 3.14."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("kserve") and find_spec("tritonclient") else ["test_rest.py"]
