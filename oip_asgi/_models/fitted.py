"""What an estimator or a booster says of itself: its columns, and what its steps and its classes tell of inputs and outputs.

Knows the names that their libraries have for that, and imports none of them.
"""

from __future__ import annotations

import inspect
import re
from collections import UserList
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

import numpy as np

from .._codecs.base import find_class
from .._protocol.datatypes import Datatype
from .._protocol.specs import AnyDatatype, AnyDatatypeWithNaN, AnyNumber, TensorSpec
from .callables import find_owner, unwrap_partial

_GIVEN_BY_LIGHTGBM: Final = re.compile(r"Column_\d+").fullmatch
"""The name of a column that had none."""


def list_columns(model: Any) -> list[str] | None:
    """The names of the columns: none if it does not know them, as of an array.

    None for other objects. In scikit-learn's words, an estimator is what can be fitted and cloned.
    """
    of_xgboost, of_lightgbm = (isinstance(model, find_class(module, "Booster")) for module in ("xgboost", "lightgbm"))
    if of_xgboost:
        return model.feature_names or []
    if _is_catboost(model):
        names = _get(model, "feature_names_") or []
        return [] if names == list(map(str, range(len(names)))) else names  # so it calls columns that had no names
    names = model.feature_name() if of_lightgbm else getattr(model, "feature_names_in_", None)
    if names is None:
        return [] if hasattr(model, "fit") and hasattr(model, "get_params") else None
    is_nameless = (of_lightgbm or isinstance(model, find_class("lightgbm", "LGBMModel"))) and all(map(_GIVEN_BY_LIGHTGBM, names))
    return [] if is_nameless else list(map(str, names))


def _is_catboost(model: Any) -> bool:
    return isinstance(model, find_class("catboost", "CatBoost"))


class Declaration(NamedTuple):
    """What a fitted model says of itself."""

    inputs: Sequence[TensorSpec]
    outputs: Sequence[TensorSpec]
    content_type: str | None


_METHODS: Final = frozenset(
    {"predict", "predict_proba", "predict_log_proba", "decision_function", "transform", "score_samples", "inplace_predict"}
)
"""Those that take the features of the training."""

_LABELED: Final = frozenset({"predict_proba", "predict_log_proba", "decision_function"})
"""Those that return a value for each class."""

_PROBABILITIES: Final[Mapping[str, Datatype]] = {"sklearn": "FP64", "lightgbm": "FP64", "catboost": "FP64", "xgboost": "FP32"}
"""The datatype of the values that a model of these libraries returns for each class."""

_OF_OTHERS: Final = frozenset({"FunctionTransformer", "HistGradientBoostingClassifier", "HistGradientBoostingRegressor"})
"""Steps that may take anything."""


def declare(function: Callable[..., Any], *, has_frames: bool) -> Declaration | None:
    """What is known of the inputs and outputs of a method of a fitted model. None for other functions, and if nothing is known."""
    model, method = find_owner(function), getattr(unwrap_partial(function), "__name__", "")
    columns = list_columns(model) if method in _METHODS else None
    if columns is None:
        return None
    outputs = _declare_classes(model) if method in _LABELED and _has_value_of_each(model, method) else ()
    if columns and has_frames:
        told = _find_columns(model, columns)
        return Declaration([_COLUMNS[told.get(name, "any")](name) for name in columns], outputs, "pd")
    width = len(columns) or find_width(model)
    if not width:
        return Declaration((), outputs, None) if outputs else None
    name = next(iter(inspect.signature(function).parameters), "X")
    return Declaration([AnyNumber(name, "FP64", [-1, width])], outputs, None)


_COLUMNS: Final[Mapping[str, Callable[[str], TensorSpec]]] = {
    "text": lambda name: TensorSpec(name, "BYTES", [-1], "str", pd_dtype="object[NaN]"),  # as pandas reads gaps of a file
    "text or None": lambda name: TensorSpec(name, "BYTES", [-1], "str"),
    "number": lambda name: AnyNumber(name, "FP64", [-1]),
    "category": lambda name: AnyDatatype(name, "BYTES", [-1]),
    "any": lambda name: AnyDatatypeWithNaN(name, "FP64", [-1]),
    "any or None": lambda name: AnyDatatype(name, "FP64", [-1]),  # also where nothing says what is missing
}


def find_width(model: Any) -> int | None:
    """How many features a model has that was fitted with an array."""
    for name in ("n_features_in_", "num_feature", "num_features"):
        with suppress(Exception):  # a property of a model that is not fitted may raise anything
            width = getattr(model, name)
            return int(width() if callable(width) else width)
    return None


def _declare_classes(model: Any) -> Sequence[TensorSpec]:
    classes, datatype = _get(model, "classes_"), _PROBABILITIES.get(_library_of(_list_steps(model)[-1]))
    if isinstance(classes, np.ndarray) and classes.ndim == 1 and datatype is not None:
        with suppress(ValueError):  # a class whose name can be no label
            return [TensorSpec("output_0", datatype, [-1, len(classes)], labels=list(map(str, classes.tolist())))]
    return ()


def _has_value_of_each(model: Any, method: str) -> bool:
    """Whether a method returns a value for each class: two classes have one decision, and `ovo` has one of each pair."""
    if method != "decision_function":
        return True
    shape = _get(_list_steps(model)[-1], "decision_function_shape")
    classes = _get(model, "classes_")
    return isinstance(classes, np.ndarray) and len(classes) > 2 and shape != "ovo"


def _get(model: Any, name: str) -> Any:
    try:
        return getattr(model, name, None)
    except Exception:  # as of `n_features_in_`
        return None


def _list_steps(model: Any) -> list[Any]:
    """The steps of a pipeline, also of the one that a search has found best."""
    if type(model).__name__ == "FrozenEstimator":
        model = model.estimator
    model = _get(model, "best_estimator_") or model
    if isinstance(_get(model, "steps"), list):
        return [each for _, step in model.steps if step not in (None, "passthrough") for each in _list_steps(step)] or [model]
    return [model]


def _library_of(step: Any) -> str:
    return type(step).__module__.partition(".")[0]


def _find_columns(model: Any, columns: Sequence[str]) -> Mapping[str, str]:
    """Which columns are text, numbers, or categories (of text or numbers), as far as the steps of a model tell it."""
    steps = _list_steps(model)
    takes_none = any(map(_seeks_none, steps))
    are_own = True  # whether a step gets the columns themselves
    for step in steps:
        categories = _get(step, "categories_")
        if isinstance(categories, list) and len(categories) == len(columns):
            of_each = [_kind_of(own, takes_none=takes_none) for own in categories]
            if are_own:
                return dict(zip(columns, of_each, strict=True))
            return dict.fromkeys(columns, "any or None" if any(kind.endswith("None") for kind in of_each) else "any")
        are_own = are_own and type(step).__name__ not in _OF_OTHERS and _keeps_columns(step, columns)
    takes_none = takes_none or any(map(_has_none, steps))
    first = steps[0]
    inner = _list_inner(first, columns)
    if inner:
        told: dict[str, str] = {}
        for each, names in inner:
            own = {} if isinstance(each, str) else _find_columns(each, names)  # "drop" and "passthrough"
            told |= {name: _join(told.get(name), own.get(name, "any"), takes_none=takes_none) for name in names}
        return told
    if hasattr(first, "vocabulary_"):
        return dict.fromkeys(columns, "text")
    if _is_catboost(first):
        kinds = dict.fromkeys(first.get_cat_feature_indices(), "category") | dict.fromkeys(first.get_text_feature_indices(), "text")
        kinds |= dict.fromkeys(first.get_embedding_feature_indices(), "any")
        return {name: kinds.get(place, "number") for place, name in enumerate(columns)}
    takes_numbers = _library_of(first) in _PROBABILITIES and type(first).__name__ not in _OF_OTHERS and not _has_estimators(first)
    statistics = _get(first, "statistics_")
    if isinstance(statistics, np.ndarray) and statistics.dtype.kind == "O":
        return dict.fromkeys(columns, "any or None" if takes_none else "any")
    return dict.fromkeys(columns, "number") if takes_numbers and not _has_categories(first) and not hasattr(first, "categories_") else {}


def _seeks_none(step: Any) -> bool:
    """Whether a step is an imputer that looks for None."""
    return hasattr(step, "missing_values") and step.missing_values is None


def _has_none(step: Any) -> bool:
    """Whether a step has None among its categories."""
    categories = _get(step, "categories_")
    return isinstance(categories, list) and any(own.dtype.kind == "O" and None in own.tolist() for own in categories)


def _join(kind: str | None, other: str, *, takes_none: bool) -> str:
    """What a column is that several steps get: anything, if one takes what another does not."""
    if kind is None or kind == other:
        return "any or None" if takes_none and other == "any" else other
    return "any" if {"any", "text"} & {kind, other} and not takes_none else "any or None"


def _has_categories(model: Any) -> bool:
    """Whether a booster, or an estimator that has one, was fitted with columns of categories."""
    is_xgboost = isinstance(model, find_class("xgboost", "XGBModel"))
    of_xgboost, of_lightgbm = _get(model, "get_booster")() if is_xgboost else model, _get(model, "booster_") or model
    return bool(_get(of_lightgbm, "pandas_categorical")) or "c" in (_get(of_xgboost, "feature_types") or ())


def _keeps_columns(step: Any, columns: Sequence[str]) -> bool:
    """Whether a step, such as an imputer, gives the next one its own columns in their order."""
    try:
        return list(step.get_feature_names_out(columns)) == list(columns)
    except Exception:  # it has no such method, or its own may raise anything
        return False


def _list_inner(model: Any, columns: Sequence[str]) -> list[tuple[Any, Sequence[str]]]:
    """The fitted estimators of which one, such as a vote, is made, and the columns that each of them gets."""
    if isinstance(_get(model, "transformers_"), list):
        return [(each, _choose(columns, chosen)) for _, each, chosen in model.transformers_]
    if not _has_estimators(model):
        return []
    several = _get(model, "estimators_")
    found = list(several) if isinstance(several, list) else []
    found += [each.estimator for each in _get(model, "calibrated_classifiers_") or ()]
    found += [each for _, each in _get(model, "transformer_list") or ()]
    found += [_get(model, name) for name in ("estimator_", "regressor_")]
    return [(each, columns) for each in found if each is not None]


def _has_estimators(model: Any) -> bool:
    return hasattr(model, "get_params") and any(hasattr(each, "fit") for each in model.get_params().values())


def _kind_of(categories: Any, *, takes_none: bool) -> str:
    """The kind of a column whose categories are known. A missing text is to be what it was in the training: to a model, None is not NaN."""
    if categories.dtype.kind not in "OUST":
        return "number"
    there = [each for each in categories if each is not None and each == each]  # NaN is missing too
    kind = "text" if all(isinstance(each, str) for each in there) else "any"
    return f"{kind} or None" if takes_none or len(there) < sum(each == each for each in categories) else kind


def _choose(columns: Sequence[str], chosen: Any) -> list[str]:
    """The names of the columns that a `ColumnTransformer` gives to one of its steps."""
    if isinstance(chosen, UserList):  # its items are another type in scikit-learn 1.7, of which 1.5 and 1.6 warn who reads one
        chosen = chosen.data
    if isinstance(chosen, str):
        return [chosen]
    if isinstance(chosen, (list, tuple, np.ndarray)) and all(isinstance(each, str) for each in chosen):
        return list(chosen)
    return list(map(str, np.array(columns, object)[chosen]))
