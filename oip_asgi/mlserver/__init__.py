"""Models that were written for MLServer: its folders with `model-settings.json`, its classes and its codecs.
MLServer is not imported."""

from . import types
from .folder import register_folder
from .model import MLModel
from .settings import ModelParameters, ModelSettings

__all__ = ["MLModel", "ModelParameters", "ModelSettings", "register_folder", "types"]
