"""What an estimator or a booster says of itself in its own attributes: its columns, its width, its classes
and its categories.

Knows the names that their libraries have for that, and imports none of them. What its steps would take is not
asked: a declaration, such as `specs_of(X)`, says that, and what the model itself refuses is 400.
"""

from __future__ import annotations

import inspect
import itertools
import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, cast

import msgspec
import numpy as np

from .._codecs.base import find_class
from .._codecs.column_dtypes import OBJECTS_WITH_NAN
from .._codecs.columns import column_to_tensor
from .._protocol.datatypes import Array, Datatype
from .._protocol.specs import OpenSpec, TensorSpec
from .callables import find_owner, unwrap_partial

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


class Declaration(NamedTuple):
    """What a fitted model says of itself."""

    inputs: Sequence[TensorSpec]
    outputs: Sequence[TensorSpec]
    content_type: str | None


_LABELED: Final = frozenset({"predict_proba", "predict_log_proba"})
"""Those that return a value for each class."""

_METHODS: Final = _LABELED | {"predict", "decision_function", "transform", "score_samples", "inplace_predict"}
"""Those that take the features of the training."""


def declare(function: Callable[..., Any], *, has_frames: bool) -> Declaration | None:
    """What is known of the inputs and outputs of a method of a fitted model. None for other functions, and if
    nothing is known.

    Raises:
        ValueError: It cannot be served without a declaration; the text says what to write.
    """
    model, method = find_owner(function), getattr(unwrap_partial(function), "__name__", "")
    columns = list_columns(model) if method in _METHODS else None
    if columns is None:
        return None
    if columns and not has_frames:
        raise ValueError(
            f"the {type(model).__name__} was fitted with a data frame, which needs pandas: pip install "
            "pandas; or, to take one "
            'array, of which nothing checks the order, write inputs=[TensorSpec("X", "FP64", [-1, '
            f"{len(columns)}])]"
        )
    outputs = _declare_classes(model) if method in _LABELED else ()
    parts = list_parts(model)
    if columns:
        return Declaration(_declare_columns(model, columns, parts), outputs, "pd")
    width, name = find_width(model), next(iter(inspect.signature(function).parameters), "X")
    if width:
        zeros = None if any(map(_may_take_texts, parts)) else [0.0] * width
        return Declaration(
            [OpenSpec(name, "FP64", [-1, width], other_datatypes="numbers", example=zeros)], outputs, None
        )
    # which takes a list of dicts
    if any(hasattr(part, "separator") or getattr(part, "input_type", None) == "dict" for part in parts):
        return Declaration([TensorSpec(name, "BYTES", [-1], "pd_json", example=["{}"])], outputs, None)
    return Declaration((), outputs, None) if outputs else None


def _declare_classes(model: Any) -> Sequence[TensorSpec]:
    # a property may raise anything, and a class may have a name that can be no label
    with suppress(Exception):
        classes, datatype = model.classes_, PROBABILITIES[find_library(model)]
        if classes.ndim == 1:
            return [
                TensorSpec("output_0", datatype, [-1, len(classes)], labels=list(map(str, classes.tolist())))
            ]
    return ()


def name_platform(function: Callable[..., Any]) -> str:
    """What metadata calls the framework: the library, of a method of one of its models."""
    library = find_library(find_owner(function))
    return library if library in PROBABILITIES else "python"


def is_of_library(function: Callable[..., Any]) -> bool:
    """Whether it is a method of a model of one of these libraries."""
    return name_platform(function) != "python"


def takes_columns(function: Callable[..., Any], inputs: Sequence[TensorSpec]) -> bool:
    """Whether declared inputs are the columns of the frame that an estimator takes, as `specs_of` lists
    them."""
    names = {each.name for each in inputs}
    return (
        len(names) > 1
        and is_of_library(function)
        and names.isdisjoint(inspect.signature(function).parameters)
    )


def refuses_request(function: Callable[..., Any], error: BaseException) -> bool:
    """Whether an error is how a model of these libraries refuses a request. "Not fitted" is an AttributeError
    too, and none."""
    is_refusal = isinstance(error, (ValueError, TypeError)) or find_library(error) in PROBABILITIES
    return is_refusal and not isinstance(error, AttributeError) and is_of_library(function)


def is_written_by_library(function: Callable[..., Any]) -> bool:
    """Whether one of these libraries wrote the function, so that its docstring describes no model."""
    return str(getattr(unwrap_partial(function), "__module__", "")).partition(".")[0] in PROBABILITIES


def _declare_columns(model: Any, columns: list[str], parts: list[Any]) -> list[TensorSpec]:
    """Columns of any datatype, but for a booster's categories: each with an example, if one is known that the
    model takes."""
    gap, of_booster = _find_gap(model, parts), _declare_categories(model, columns)
    known: dict[str, str | float | None] = {}
    for part in reversed(parts):  # the first step of a column goes before later ones
        known.update(
            zip(
                map(str, getattr(part, "feature_names_in_", ())),
                map(_find_example, _list_values(part)),
                strict=False,
            )
        )
    knows_texts = any(isinstance(each, str) for each in known.values())
    is_plain = not any(_may_take_texts(part, knows_texts=knows_texts) for part in parts)
    examples = {
        name: each
        for name, each in {**dict.fromkeys(columns, 0.0), **known}.items()
        if is_plain or isinstance(each, str)
    }
    return [of_booster.get(name) or _declare_column(name, examples.get(name), gap) for name in columns]


def _declare_column(name: str, example: str | float | None, gap: str) -> TensorSpec:
    return OpenSpec(
        name,
        "BYTES" if isinstance(example, str) else "FP64",
        [-1],
        example=None if example is None else [example],
        other_datatypes="all",
        gap_dtype=gap,
        is_number=isinstance(example, float),
    )


def _may_take_texts(part: Any, *, knows_texts: bool = False) -> bool:
    """Whether a part may take something else than numbers, and no attribute says of which columns."""
    is_of_others = hasattr(part, "fit") and find_library(part) not in PROBABILITIES
    is_nameless = not knows_texts and hasattr(part, "categories_") and not hasattr(part, "feature_names_in_")
    return (
        is_of_others
        or is_nameless
        or hasattr(part, "build_analyzer")
        or getattr(part, "func", None) is not None
    )


def _list_values(part: Any) -> list[Array]:
    """What a part knows of each of its columns: an encoder its categories; an imputer a text of the training,
    or that it had numbers."""
    # the steps after it may not know the value that it fills in
    text = ... if getattr(part, "strategy", None) == "constant" else None
    filled = [
        (text or each) if isinstance(each, str) else 0.0
        for each in np.ravel(getattr(part, "statistics_", ()))
    ]
    categories = getattr(part, "categories_", None)
    return list(map(np.ravel, categories if isinstance(categories, list) else filled))


def _find_example(values: Array) -> str | float | None:
    """One that is a text or a number. scikit-learn takes numbers that it knew as objects only as such."""
    number = float(values[0]) if values.dtype.kind in "iuf" and len(values) else None
    return next((each for each in values.tolist() if isinstance(each, str)), number)


def _find_gap(model: Any, parts: list[Any]) -> str:
    """The dtype of a column of texts with gaps: they are None if its encoders and imputers know that, else
    NaN, as pandas reads files."""
    seen: list[Any] = []
    for part in parts:
        known = _list_values(part)
        seen += itertools.chain.from_iterable(map(np.ndarray.tolist, known))
        # numbers have NaN in any case
        has_texts = known and not any(values.dtype.kind == "f" for values in known)
        missing = getattr(part, "missing_values", ...)
        # as an indicator of what is missing has them
        if missing is None or has_texts or hasattr(part, "features_"):
            seen.append(missing)
    if all(each is not None for each in seen):
        return OBJECTS_WITH_NAN
    if any(isinstance(each, float) and each != each for each in seen):
        raise _make_ambiguous(
            model, "may have been fitted with None and with NaN, which are two values to it"
        )
    return "object"


def _make_ambiguous(model: Any, why: str) -> ValueError:
    return ValueError(
        f"the {type(model).__name__} {why}: write inputs=specs_of(X), with the frame X that it was fitted "
        "with"
    )


def _declare_categories(model: Any, columns: list[str]) -> Mapping[str, TensorSpec]:
    """The columns of categories of a booster."""
    of_catboost = isinstance(model, find_class("catboost", "CatBoost"))
    if of_catboost:  # which takes any text for them
        places = [*model.get_cat_feature_indices(), *model.get_text_feature_indices()]
        return {columns[place]: _declare_column(columns[place], "text", OBJECTS_WITH_NAN) for place in places}
    found: Mapping[str, Any] = find_categories(model)
    if not found:
        return {}
    if None in found.values():
        raise _make_ambiguous(model, "does not say which categories it was fitted with")
    import pandas as pd

    tensors = [column_to_tensor(name, pd.Series(pd.Categorical(own, own))) for name, own in found.items()]
    return {
        each.name: TensorSpec(each.name, each.datatype, [-1], **cast("Any", each.parameters))
        for each in tensors
    }


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
    of_lightgbm = isinstance(model, find_class("lightgbm", "Booster"))
    of_xgboost = isinstance(model, find_class("xgboost", "Booster"))
    if of_xgboost:
        return model.feature_names or []
    of_catboost = isinstance(model, find_class("catboost", "CatBoost"))
    if of_catboost:
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
