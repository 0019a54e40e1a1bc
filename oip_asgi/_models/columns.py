"""The columns that an estimator or a booster was fitted with: their names, their number, and the categories
that a booster knows.

Knows the names that LightGBM, XGBoost, CatBoost and scikit-learn have for that, and imports none of them.
"""

from __future__ import annotations

import itertools
import re
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from .._codecs.base import find_class
from .._protocol.datatypes import Datatype

_GIVEN_BY_LIGHTGBM: Final = re.compile(r"Column_\d+").fullmatch
"""The name of a column that had none."""


PROBABILITIES: Final[Mapping[str, Datatype]] = {
    "sklearn": "FP64",
    "lightgbm": "FP64",
    "catboost": "FP64",
    "xgboost": "FP32",
}
"""The datatype of the values that a model of these libraries returns for each class."""


def find_library(model: Any) -> str:
    return type(model).__module__.partition(".")[0].lstrip("_")  # CatBoost's errors are of _catboost


def list_parts(model: Any) -> list[Any]:
    """A model and what it is made of, in order, whatever it calls that: estimators, and objects of the
    libraries that may hold some."""
    parts, left, seen = list[Any](), deque([model]), set[int]()
    while left:
        each = left.popleft()
        if id(each) in seen or isinstance(each, type):
            continue
        seen.add(id(each))
        within = each if isinstance(each, (list, tuple)) else ()
        if hasattr(each, "fit") or find_library(each) in PROBABILITIES:
            parts.append(each)
            within = tuple(getattr(each, "__dict__", {}).values())
        left.extendleft(reversed(within))
    return parts


def list_columns(model: Any) -> list[str] | None:
    """The names of the columns: none if it does not know them, as of an array.

    None for other objects. In scikit-learn's words, an estimator is what can be fitted and cloned.
    """
    of_xgboost, of_lightgbm = (
        isinstance(model, find_class(module, "Booster")) for module in ("xgboost", "lightgbm")
    )
    if of_xgboost:
        return model.feature_names or []
    if is_catboost(model):
        names = getattr(model, "feature_names_", None) or []
        # so it calls columns that had no names
        return [] if names == list(map(str, range(len(names)))) else names
    names = model.feature_name() if of_lightgbm else getattr(model, "feature_names_in_", None)
    if names is None:
        return [] if hasattr(model, "fit") and hasattr(model, "get_params") else None
    is_nameless = (of_lightgbm or isinstance(model, find_class("lightgbm", "LGBMModel"))) and all(
        map(_GIVEN_BY_LIGHTGBM, names)
    )
    return [] if is_nameless else list(map(str, names))


def is_catboost(model: Any) -> bool:
    return isinstance(model, find_class("catboost", "CatBoost"))


def find_width(model: Any) -> int | None:
    """How many features a model has that was fitted with an array."""
    for name in ("n_features_in_", "num_feature", "num_features"):
        with suppress(Exception):  # a property of a model that is not fitted may raise anything
            width = getattr(model, name)
            return int(width() if callable(width) else width)
    return None


def find_categories(model: Any) -> Mapping[str, Sequence[Any] | None]:
    """The categories of each column that has some, in their order; None if a booster of LightGBM or XGBoost
    does not say them."""
    booster: Any = model.get_booster() if hasattr(model, "get_booster") else getattr(model, "booster_", model)
    of_lightgbm, of_xgboost = (
        isinstance(booster, find_class(module, "Booster")) for module in ("lightgbm", "xgboost")
    )
    names, categories = list[str](), list[Any]()
    if of_lightgbm and booster.pandas_categorical:
        names = [
            name
            for name, info in booster.dump_model(num_iteration=1)["feature_infos"].items()
            if info["values"]
        ]
        categories = booster.pandas_categorical
    elif of_xgboost and "c" in (booster.feature_types or ()):
        names = [
            name
            for name, kind in zip(booster.feature_names, booster.feature_types, strict=True)
            if kind == "c"
        ]
        written = msgspec.json.decode(booster.save_raw("json"))["learner"]["gradient_booster"]
        # none before XGBoost 3.1
        encoded = written.get("gbtree", written)["model"].get("cats", {"enc": ()})["enc"]
        categories = [_read_categories(each) for each in encoded if each["values"]]
    return (
        dict(zip(names, categories, strict=True)) if len(names) == len(categories) else dict.fromkeys(names)
    )


def _read_categories(encoded: Mapping[str, Any]) -> list[Any] | None:
    """Numbers, or the bytes of texts one after another, with the place where each begins: None if these are
    places of characters."""
    if "offsets" not in encoded:
        return list(encoded["values"])
    text = bytes(value & 255 for value in encoded["values"])
    return (
        [text[begin:end].decode() for begin, end in itertools.pairwise(encoded["offsets"])]
        if text.isascii()
        else None
    )
