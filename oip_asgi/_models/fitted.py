"""Which columns an estimator or a booster was fitted with. Knows the names that their libraries have for that, and imports none of them."""

from __future__ import annotations

import re
from typing import Any, Final

from .._codecs.base import find_class

_GIVEN_BY_LIGHTGBM: Final = re.compile(r"Column_\d+").fullmatch
"""The name of a column that had none."""


def list_columns(model: Any) -> list[str] | None:
    """The names of the columns: none if it does not know them, as of an array.

    None for other objects. In scikit-learn's words, an estimator is what can be fitted and cloned.
    """
    of_xgboost, of_lightgbm = (isinstance(model, find_class(module, "Booster")) for module in ("xgboost", "lightgbm"))
    if of_xgboost:
        return model.feature_names or []
    names = model.feature_name() if of_lightgbm else getattr(model, "feature_names_in_", None)
    if names is None:
        return [] if hasattr(model, "fit") and hasattr(model, "get_params") else None
    is_nameless = (of_lightgbm or isinstance(model, find_class("lightgbm", "LGBMModel"))) and all(map(_GIVEN_BY_LIGHTGBM, names))
    return [] if is_nameless else list(map(str, names))
