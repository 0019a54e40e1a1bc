"""Each option is said once: what type checkers, `help()` and the documentation show is what the struct of the options says."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec
import pytest

from oip_asgi import InferenceServer
from tests.support.inside.models import ModelKeywords, ModelOptions, ServerKeywords, ServerOptions
from tests.support.inside.values import list_fields

TABLES = Path(__file__).parents[3] / "examples" / "guide" / "options.md"
STRUCTS: list[type[msgspec.Struct]] = [ModelOptions, ServerOptions]


def test_the_keywords_of_register_are_the_options_of_a_model() -> None:
    hints = get_type_hints(ModelOptions, include_extras=True)
    options = {name: get_args(hint)[0] for name, hint in hints.items() if get_origin(hint) is Annotated}
    assert get_type_hints(ModelKeywords) == options


def test_the_keywords_of_a_server_are_its_options() -> None:
    hints = get_type_hints(ServerOptions, include_extras=True)
    options = {name: get_args(hint)[0] for name, hint in hints.items() if name not in ("name", "version")}
    assert get_type_hints(ServerKeywords) == options


@pytest.mark.parametrize("struct", STRUCTS)
def test_the_signature_shows_each_option(struct: type[msgspec.Struct]) -> None:
    parameters = inspect.signature(InferenceServer if struct is ServerOptions else InferenceServer.register).parameters
    options = {field.name: field.default for field in msgspec.structs.fields(struct) if not field.required}
    assert {name: parameters[name].default for name in options} == options
    assert all(parameter.kind is not parameter.VAR_KEYWORD for parameter in parameters.values())


def test_a_misspelled_option_of_a_server_is_told_the_right_one() -> None:
    misspelled: dict[str, Any] = {"max_body_byte": 1}
    with pytest.raises(TypeError, match=r"InferenceServer: max_body_byte= is not an option: did you mean max_body_bytes=\?"):
        InferenceServer(**misspelled)


@pytest.mark.parametrize("struct", STRUCTS)
def test_help_shows_each_option(struct: type[msgspec.Struct]) -> None:
    documented: Any = InferenceServer if struct is ServerOptions else InferenceServer.register
    text = " ".join(inspect.getdoc(documented).split())  # type: ignore[union-attr]
    for field in list_fields(struct).values():
        assert f"{field.name} ({field.type}, default {field.default!r}): {field.option.says}" in text


def test_help_of_the_decorator_lists_each_option() -> None:
    lines = [line.strip() for line in str(inspect.getdoc(InferenceServer.model)).splitlines()]
    listed = [f"{field.name} ({field.type}, default {field.default!r})" for field in list_fields(ModelOptions).values()]
    assert [line for line in lines if ", default " in line] == listed


def tabulate(struct: type[msgspec.Struct]) -> str:
    """The options of a struct as a table of Markdown."""
    lines = ["| option | default | what it is for |", "|---|---|---|"]
    lines += [f"| `{field.name}=` | `{field.default!r}` | {field.option.says} |" for field in list_fields(struct).values()]
    return "\n".join(lines)


@pytest.mark.parametrize("struct", STRUCTS)
def test_the_documentation_has_the_table_of_all_options(struct: type[msgspec.Struct]) -> None:
    assert tabulate(struct) in TABLES.read_text(), f"the table should be:\n{tabulate(struct)}"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("input", "model 'm': input= is not an option: did you mean inputs=?"),
        ("max_concurency", "model 'm': max_concurency= is not an option: did you mean max_concurrency=?"),
        ("device", "model 'm': device= is not an option: the options are version, platform, inputs, "),
    ],
)
def test_a_misspelled_option_is_told_the_right_one(name: str, text: str) -> None:
    server = InferenceServer()
    misspelled: dict[str, Any] = {name: 1}
    with pytest.raises(TypeError) as error:
        server.register("m", lambda x: x, **misspelled)
    assert str(error.value).startswith(text)


def test_literals_are_checked_by_their_own_values() -> None:
    hint = get_args(get_type_hints(ModelOptions, include_extras=True)["run"])[0]
    assert get_origin(hint) is Literal
    check = list_fields(ModelOptions)["run"].option.check
    assert check is not None
    assert all(map(check.holds, get_args(hint)))
