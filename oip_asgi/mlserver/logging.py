"""The log under MLServer's name."""

from .settings import logger

__all__ = ["logger"]
