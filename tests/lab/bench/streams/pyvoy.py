"""The application that pyvoy serves, which takes an object of a module."""

from __future__ import annotations

from .served import grpc_app

app = grpc_app()
