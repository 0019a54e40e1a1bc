"""Documents of the protocol's extensions -> messages of gRPC, which have the same fields. Knows only messages' fields: no protobuf."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


def fill(message: Any, document: msgspec.Struct) -> None:
    """Fill a message with a document."""
    _fill(message, msgspec.to_builtins(document))


def _fill(message: Any, fields: Mapping[str, Any]) -> None:
    kinds = message.DESCRIPTOR.fields_by_name
    for name, value in fields.items():
        target = getattr(message, name)
        if isinstance(value, list):
            for item in value:
                if isinstance(item, dict):
                    _fill(target.add(), item)
                else:
                    target.append(item)
        elif not isinstance(value, dict):
            names = kinds[name].enum_type
            setattr(message, name, value if names is None else names.values_by_name[value].number)
        elif hasattr(target, "SetInParent"):
            target.SetInParent()
            _fill(target, value)
        else:  # a map to messages
            for key, item in value.items():
                _fill(target[key], item)
