"""What an estimator or a booster says of itself: its columns, and what its steps and its classes tell of inputs and outputs.

Knows the names that their libraries have for that, and imports none of them.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections import UserList
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import dropwhile
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from .._codecs.base import find_class
from .._protocol.datatypes import Datatype
from .._protocol.specs import OpenSpec, TensorSpec
from .callables import split_method, unwrap_partial

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
        names = _get_attribute(model, "feature_names_") or []
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

_PREDICTING: Final = _LABELED | {"predict"}
"""Those that need a fit. A transformer may need none: of texts, if it was given a vocabulary."""

_PROBABILITIES: Final[Mapping[str, Datatype]] = {"sklearn": "FP64", "lightgbm": "FP64", "catboost": "FP64", "xgboost": "FP32"}
"""The datatype of the values that a model of these libraries returns for each class."""

_OF_OTHERS: Final = frozenset({"FunctionTransformer", "HistGradientBoostingClassifier", "HistGradientBoostingRegressor"})
"""Steps that may take anything."""


def declare(function: Callable[..., Any], *, has_frames: bool) -> Declaration | None:
    """What is known of the inputs and outputs of a method of a fitted model. None for other functions, and if nothing is known."""
    model, method = split_method(function)
    columns = list_columns(model) if method in _METHODS else None
    if columns is None:
        return None
    outputs = _declare_classes(model) if method in _LABELED and _has_value_of_each(model, method) else ()
    if columns and has_frames:
        described = _describe_columns(model, columns)
        return Declaration([_declare_column(name, described[name]) for name in columns], outputs, "pd")
    width = len(columns) or find_width(model)
    if not width:
        return Declaration((), outputs, None) if outputs else None
    name = next(iter(inspect.signature(function).parameters), "X")
    allow_nan = not all(_list_strict(model, list(map(str, range(width)))))  # it is declared of all columns of an array
    return Declaration([OpenSpec(name, "FP64", [-1, width], other_datatypes="numbers", allow_nan=allow_nan)], outputs, None)


def refuse_missing(function: Callable[..., Any], specs: Sequence[TensorSpec]) -> Sequence[TensorSpec]:
    """The inputs that a user has declared of a method of a fitted model, which take no missing value where the model takes none."""
    model, method = split_method(function)
    columns = list_columns(model) if method in _METHODS else None
    width = 0 if columns is None else len(columns) or find_width(model)
    if not width or not specs:
        return specs
    is_strict = _list_strict(model, columns or list(map(str, range(width))))
    names = columns or ([spec.name for spec in specs] if len(specs) == width else [])  # columns without names are known by their places
    strict, whole = dict(zip(names, is_strict, strict=False)), len(specs) == 1 and all(is_strict)  # one that is no column is all of them
    return [replace(spec, allow_nan=False) if strict.get(spec.name, whole) and _may_miss(spec) else spec for spec in specs]


def _may_miss(spec: TensorSpec) -> bool:
    """Whether the datatype has missing values: integers and booleans have them only in a dtype of data frames, such as "Int64"."""
    return spec.dtype.kind not in "biu" or spec.pd_dtype is not None


def _list_strict(model: Any, columns: list[str]) -> Sequence[bool]:
    """Whether a model takes no missing value in a column, for each of them."""
    return [any(not each.allow_nan for each in told) for told in _describe_columns(model, columns).values()]


def is_unfitted(function: Callable[..., Any]) -> bool:
    """Whether it is certain that an estimator was not fitted: one of one's own may keep what it knows where scikit-learn does not look."""
    model, method = split_method(function)
    validation = sys.modules.get("sklearn.utils.validation")
    if validation is None or method not in _PREDICTING or not _tells_if_fitted(model) or not _tells_if_fitted(_find_last(model)):
        return False
    try:
        validation.check_is_fitted(model)
    except ValueError:  # scikit-learn's NotFittedError is one
        return _needs_fit(model)
    except Exception:  # what an older version wrote may lack an attribute
        return False
    return False


def _tells_if_fitted(model: Any) -> bool:
    return hasattr(model, "fit") and (_find_library(model) == "sklearn" or hasattr(model, "__sklearn_is_fitted__"))


def _needs_fit(model: Any) -> bool:
    """False for what predicts before it is fitted: scikit-learn 1.5 does not ask its tag for that."""
    return hasattr(model, "__sklearn_tags__") or _find_library(model) != "sklearn" or bool(model._get_tags()["requires_fit"])


def find_width(model: Any) -> int | None:
    """How many features a model has that was fitted with an array."""
    for name in ("n_features_in_", "num_feature", "num_features"):
        with suppress(Exception):  # a property of a model that is not fitted may raise anything
            width = getattr(model, name)
            return int(width() if callable(width) else width)
    return None


def _declare_classes(model: Any) -> Sequence[TensorSpec]:
    classes, datatype = _get_attribute(model, "classes_"), _PROBABILITIES.get(_find_library(_find_last(model)))
    if isinstance(classes, np.ndarray) and classes.ndim == 1 and datatype is not None:
        with suppress(ValueError):  # a class whose name can be no label
            return [TensorSpec("output_0", datatype, [-1, len(classes)], labels=list(map(str, classes.tolist())))]
    return ()


def _has_value_of_each(model: Any, method: str) -> bool:
    """Whether a method returns a value for each class: two classes have one decision, and `ovo` has one of each pair."""
    if method != "decision_function":
        return True
    classes = _get_attribute(model, "classes_")
    return isinstance(classes, np.ndarray) and len(classes) > 2 and not _decides_each_pair(model)


def _decides_each_pair(model: Any) -> bool:
    """Whether the estimator that decides, also one within a bag, a stack or the like, has a decision of each pair of classes."""
    last = _find_last(model)
    shape = _get_attribute(last, "decision_function_shape")
    if shape is not None:
        return bool(shape == "ovo")
    is_bag = _get_attribute(last, "estimators_features_") is not None  # others, such as a boost, make decisions of their own
    bag = list(_get_attribute(last, "estimators_") or ()) if is_bag else []
    within = [_get_attribute(last, name) for name in ("final_estimator_", "estimator_")] + bag[:1]
    return any(_decides_each_pair(each) for each in within if _get_attribute(each, "classes_") is not None)


def _get_attribute(model: Any, name: str) -> Any:
    try:
        return getattr(model, name, None)
    except Exception:  # as of `n_features_in_`
        return None


def _find_last(model: Any) -> Any:
    """The estimator that decides, such as the last step of a pipeline."""
    [(_, steps)] = _list_ways(model, frozenset(), None)
    return steps[-1][0]


def _find_library(step: Any) -> str:
    return type(step).__module__.partition(".")[0]


def has_docstring_of_library(function: Callable[..., Any]) -> bool:
    """Whether a library wrote the docstring of a method, also one that a method without its own inherits: it describes no model."""
    model, method = split_method(function)
    inherited = [vars(cls).get(method) for cls in type(model).__mro__]
    written = next((each for each in (unwrap_partial(function), *inherited) if getattr(each, "__doc__", None)), None)
    return str(getattr(written, "__module__", "")).partition(".")[0] in _PROBABILITIES


_Steps: TypeAlias = list[tuple[Any, list[str] | None]]
"""Estimators through which columns go one after another, each with the names of all that it gets: None where they are not known."""


def _list_ways(model: Any, columns: frozenset[str], names: list[str] | None) -> list[tuple[frozenset[str], _Steps]]:
    """The ways of some columns through what is within a model that gets these names: estimators without others within, or words."""
    held = model.estimator if type(model).__name__ == "FrozenEstimator" else _get_attribute(model, "best_estimator_")
    if held is not None:
        return _list_ways(held, columns, names)
    steps = _get_attribute(model, "steps")
    is_pipeline = isinstance(steps, list) and all(isinstance(each, (tuple, list)) and len(each) == 2 for each in steps)
    within = [step for _, step in steps if step not in (None, "passthrough")] if is_pipeline else []
    if not within:
        inner = [] if names is None else _list_inner(model, names)
        return [way for each, own in inner for way in _list_ways(each, columns.intersection(own), own)] or [(columns, [(model, names)])]
    ways: list[tuple[frozenset[str], _Steps]] = [(columns, [])]
    for step in within:
        ways = [(left, before + after) for own, before in ways for left, after in _list_ways(step, own, names)]
        names = names if names is not None and _keeps_columns(step, names) else None
    return ways


def _list_inner(model: Any, columns: list[str]) -> list[tuple[Any, list[str]]]:
    """The fitted estimators of which one, such as a vote, is made, and the columns that each of them gets."""
    if isinstance(_get_attribute(model, "transformers_"), list):
        return [(each, _choose_columns(columns, chosen)) for _, each, chosen in model.transformers_]
    if not _has_estimators(model):
        return []
    several, chosen = _get_attribute(model, "estimators_"), _get_attribute(model, "estimators_features_")
    found = list(several) if isinstance(several, list) else []
    if isinstance(chosen, list):  # each of a bag may get some columns only
        return [(each, _choose_columns(columns, own)) for each, own in zip(found, chosen, strict=True)]
    found += [each.estimator for each in _get_attribute(model, "calibrated_classifiers_") or ()]
    found += [each for _, each in _get_attribute(model, "transformer_list") or ()]
    found += [_get_attribute(model, name) for name in ("estimator_", "regressor_")]
    return [(each, columns) for each in found if each is not None]


def _has_estimators(model: Any) -> bool:
    if not hasattr(model, "get_params"):
        return False
    try:
        return any(hasattr(each, "fit") for each in (model.get_params() or {}).values())
    except Exception:  # what an older version wrote may lack a parameter: it may be made of any others, and then it may take anything
        return True


def _keeps_columns(step: Any, columns: Sequence[str]) -> bool:
    """Whether a step, such as an imputer, gives the next one its own columns in their order."""
    try:
        return type(step).__name__ not in _OF_OTHERS and list(step.get_feature_names_out(columns)) == list(columns)
    except Exception:  # it has no such method, or its own may raise anything
        return False


class _Column(NamedTuple):
    """What one of its ways tells of a column."""

    kind: str  # text, number, object (a number or boolean among objects), category (of text or integers) or any
    has_none: bool  # whether a missing value was None in the training: to a model, None is not NaN
    allow_nan: bool = True  # whether values may be missing at all, as far as it is known
    example: Sequence[str] | None = None  # a text that is known, or of an object, as a JSON text


def _describe_columns(model: Any, columns: list[str]) -> Mapping[str, Sequence[_Column]]:
    """What the estimators that get a column tell of it, each thing once where they tell it of many columns."""
    told: dict[str, list[_Column]] = {name: [] for name in columns}
    alike: dict[_Column, set[str]] = {}  # the many estimators of a bag mostly tell the same
    for own, steps in _list_ways(model, frozenset(columns), columns):
        described = _describe_way(steps)
        if isinstance(described, _Column):
            alike.setdefault(described, set()).update(own)
        else:
            for name in own:
                told[name].append(described[name])
    return {name: [*told[name], *(each for each, names in alike.items() if name in names)] for name in columns}


def _declare_column(name: str, told: Sequence[_Column]) -> TensorSpec:
    """A column as all of them take it: anything, if one of them takes what another does not."""
    kinds, has_none = {each.kind for each in told}, any(each.has_none for each in told)
    kind = kinds.pop() if len(kinds) == 1 else "any"
    gap = None if has_none else "object[NaN]"  # as pandas reads gaps of a file
    return OpenSpec(
        name,
        "FP64" if kind in ("number", "any") else "BYTES",
        [-1],
        {"text": "str", "object": "pd_json"}.get(kind),
        example=next((each.example for each in told if each.kind == kind and each.example), None),
        pd_dtype={"text": gap, "object": gap or "object"}.get(kind),
        other_datatypes={"text": None, "object": None, "number": "numbers"}.get(kind, "all"),
        nan_dtype=gap if kind == "any" else None,
        allow_nan=all(each.allow_nan for each in told),
    )


def _describe_way(steps: _Steps) -> _Column | Mapping[str, _Column]:
    """What columns are that go through these steps. The first encoder knows it of each of them, or else the first step of all."""
    has_none = any(getattr(step, "missing_values", ...) is None for step, _ in steps)  # an imputer that looks for it
    left = list(dropwhile(lambda step: _passes_missing(step[0]), steps))
    for index, (step, names) in enumerate(steps):
        categories = _list_categories(step)
        if names is not None and len(categories) == len(names):
            is_strict = _get_attribute(step, "handle_unknown") == "error" and len(steps) - index == len(left)
            of_each = [_describe_categories(own, has_none=has_none, is_strict=is_strict) for own in categories]
            return dict(zip(names, of_each, strict=True))
    has_none = has_none or any(each is None for step, _ in steps for own in _list_categories(step) for each in own.tolist())
    first, names = steps[0]
    if _is_catboost(first):
        kinds = dict.fromkeys(first.get_cat_feature_indices(), "category") | dict.fromkeys(first.get_text_feature_indices(), "text")
        kinds |= dict.fromkeys(first.get_embedding_feature_indices(), "any")
        return {name: _Column(kinds.get(place, "number"), has_none) for place, name in enumerate(names or ())}
    return _Column(_find_kind(first), has_none, not left or not _refuses_missing(left[0][0]))


_PASSES: Final = frozenset({"MaxAbsScaler", "MinMaxScaler", "PowerTransformer", "QuantileTransformer", "RobustScaler", "StandardScaler"})
"""Steps of scikit-learn that leave what is missing as it is. Its tags say who takes NaN, but not who keeps it: `TargetEncoder` makes a
number of it. If a class is missing here, NaN is 500 where it could be 400; with one too many, a right request would be refused."""


def _passes_missing(step: Any) -> bool:
    name = type(step).__name__
    has_no_function = name == "FunctionTransformer" and step.func is None and not step.validate  # which stands for "passthrough"
    return step == "passthrough" or (_find_library(step) == "sklearn" and (name in _PASSES or has_no_function))


def _refuses_missing(step: Any) -> bool:
    """Whether an estimator of scikit-learn refuses NaN and infinities, as its tags say. One of one's own may have the tags of its base."""
    if _find_library(step) != "sklearn" or _has_estimators(step) or getattr(step, "missing_values", ...) is None:
        return False
    if type(step).__name__.startswith("_"):  # scikit-learn checks the tags of public classes only: _ConstantPredictor has those of its base
        return False
    if hasattr(step, "__sklearn_tags__"):
        tags = step.__sklearn_tags__()
        return not (tags.no_validation or tags.input_tags.allow_nan)
    tags = step._get_tags()  # of scikit-learn 1.5
    return not (tags["no_validation"] or tags["allow_nan"])


def _list_categories(step: Any) -> list[Any]:
    """Those that an encoder knows, of each of its columns."""
    categories = _get_attribute(step, "categories_")
    return categories if isinstance(categories, list) else []


def _describe_categories(categories: Any, *, has_none: bool, is_strict: bool) -> _Column:
    values = categories.tolist()
    there = [each for each in values if each is not None and each == each]  # NaN is missing too
    kinds: dict[str, Any] = {"text": str, "object": (bool, int, float)}
    kind = next((kind for kind, types in kinds.items() if all(isinstance(each, types) for each in there)), "any")
    has_none, allow_nan = has_none or any(each is None for each in values), len(there) < len(values) or not is_strict
    if categories.dtype.kind not in "OUST":
        return _Column("number", has_none, allow_nan)
    example = there[:1] if kind == "text" else [json.dumps(there[0])] if kind == "object" else None
    return _Column(kind, has_none, allow_nan, example)


def _find_kind(step: Any) -> str:
    """The kind of the columns of a step that knows no categories of theirs."""
    if hasattr(step, "vocabulary_") or type(step).__name__ == "HashingVectorizer":
        return "text"
    takes_numbers = _find_library(step) in _PROBABILITIES and type(step).__name__ not in _OF_OTHERS and not _has_estimators(step)
    is_of_objects = getattr(getattr(_get_attribute(step, "statistics_"), "dtype", None), "hasobject", False)
    takes_others = is_of_objects or _has_categories(step) or hasattr(step, "categories_")
    return "number" if takes_numbers and not takes_others else "any"


def _has_categories(model: Any) -> bool:
    """Whether a booster, or an estimator that has one, was fitted with columns of categories."""
    is_xgboost = isinstance(model, find_class("xgboost", "XGBModel"))
    of_xgboost, of_lightgbm = _get_attribute(model, "get_booster")() if is_xgboost else model, _get_attribute(model, "booster_") or model
    return bool(_get_attribute(of_lightgbm, "pandas_categorical")) or "c" in (_get_attribute(of_xgboost, "feature_types") or ())


def _choose_columns(columns: Sequence[str], chosen: Any) -> list[str]:
    """The names of the columns that a `ColumnTransformer` gives to one of its steps."""
    if isinstance(chosen, UserList):  # its items are another type in scikit-learn 1.7, of which 1.5 and 1.6 warn who reads one
        chosen = chosen.data
    if isinstance(chosen, str):
        return [chosen]
    if isinstance(chosen, slice) and (isinstance(chosen.start, str) or isinstance(chosen.stop, str)):  # its last one is in it
        start = 0 if chosen.start is None else columns.index(chosen.start)
        return list(columns[start : None if chosen.stop is None else columns.index(chosen.stop) + 1 : chosen.step])
    if isinstance(chosen, (list, tuple, np.ndarray)) and all(isinstance(each, str) for each in chosen):
        return list(chosen)
    return [*np.atleast_1d(np.array(columns, object)[chosen]).tolist()]  # one place gives the name itself
