"""Tests that need a process of their own: tritonclient and kserve both register the protocol's messages under the same names, and collide.

They are not collected with the others; ../test_grpc.py runs each module by itself.
"""
