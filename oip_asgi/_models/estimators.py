"""What an estimator or a booster says of itself in its own attributes: its columns, its width, its classes
and its categories.

Knows the names that their libraries have for that, and imports none of them. What its steps would take is not
asked: a declaration, such as `specs_of(X)`, says that, and what the model itself refuses is 400.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, cast

import numpy as np

from .._codecs.column_dtypes import OBJECTS_WITH_NAN
from .._codecs.column_writing import column_to_tensor
from .._protocol.datatypes import Array
from .._protocol.specs import OpenSpec, TensorSpec
from .callables import find_owner, split_method, unwrap_partial
from .columns import (
    PROBABILITIES,
    find_categories,
    find_library,
    find_width,
    is_catboost,
    list_columns,
    list_parts,
)


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
    model, method = split_method(function)
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


def is_of_library(function: Callable[..., Any]) -> bool:
    """Whether it is a method of a model of one of these libraries."""
    return find_library(find_owner(function)) in PROBABILITIES


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


def has_docstring_of_library(function: Callable[..., Any]) -> bool:
    """Whether a library wrote the docstring of a method, also one that a method without its own inherits: it
    describes no model."""
    model, method = split_method(function)
    inherited = [vars(cls).get(method) for cls in type(model).__mro__]
    written = next(
        (each for each in (unwrap_partial(function), *inherited) if getattr(each, "__doc__", None)), None
    )
    return str(getattr(written, "__module__", "")).partition(".")[0] in PROBABILITIES


# Columns of a frame


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
        known, missing = _list_values(part), getattr(part, "missing_values", ...)
        seen += [each for values in known for each in values.tolist()]
        # numbers have NaN in any case
        has_texts = known and not any(values.dtype.kind == "f" for values in known)
        # as an indicator of what is missing has them
        if missing is None or has_texts or hasattr(part, "features_"):
            seen.append(missing)
    has_none = any(each is None for each in seen)
    if has_none and any(isinstance(each, float) and each != each for each in seen):
        raise _make_ambiguous(
            model, "may have been fitted with None and with NaN, which are two values to it"
        )
    return "object" if has_none else OBJECTS_WITH_NAN


def _make_ambiguous(model: Any, why: str) -> ValueError:
    return ValueError(
        f"the {type(model).__name__} {why}: write inputs=specs_of(X), with the frame X that it was fitted "
        "with"
    )


def _declare_categories(model: Any, columns: list[str]) -> Mapping[str, TensorSpec]:
    """The columns of categories of a booster."""
    if is_catboost(model):  # which takes any text for them
        places = [*model.get_cat_feature_indices(), *model.get_text_feature_indices()]
        return {columns[place]: _declare_column(columns[place], "text", OBJECTS_WITH_NAN) for place in places}
    found: Mapping[str, Any] = find_categories(model)
    if None in found.values():
        raise _make_ambiguous(model, "does not say which categories it was fitted with")
    if not found:
        return {}
    import pandas as pd

    tensors = [column_to_tensor(name, pd.Series(pd.Categorical(own, own))) for name, own in found.items()]
    return {
        each.name: TensorSpec(each.name, each.datatype, [-1], **cast("Any", each.parameters))
        for each in tensors
    }
