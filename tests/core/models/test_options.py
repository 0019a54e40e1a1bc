"""Each option is said once: its type, default and check in a struct, its sentence in a docstring. All else that shows options has these."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec
import pytest

from oip_asgi import InferenceServer
from tests.support.inside.models import ModelKeywords, ModelOptions, ServerKeywords, ServerOptions
from tests.support.inside.values import list_fields

TABLES = Path(__file__).parents[3] / "examples" / "guide" / "options.md"
STRUCTS: list[type[msgspec.Struct]] = [ModelOptions, ServerOptions]
PAGES = dict(zip(STRUCTS, TABLES.read_text().split("## Of a ")[1:], strict=True))
NEEDED_BY = ("everyone", "under load", "rarely")


def test_the_keywords_of_register_are_the_options_of_a_model() -> None:
    options = {name: hint for name, hint in get_type_hints(ModelOptions).items() if name not in ("name", "function")}
    assert get_type_hints(ModelKeywords) == options


def test_the_keywords_of_a_server_are_its_options() -> None:
    options = {name: hint for name, hint in get_type_hints(ServerOptions).items() if name not in ("name", "version")}
    assert get_type_hints(ServerKeywords) == options


@pytest.mark.parametrize("struct", STRUCTS)
def test_the_signature_shows_each_option(struct: type[msgspec.Struct]) -> None:
    parameters = inspect.signature(InferenceServer if struct is ServerOptions else InferenceServer.register).parameters
    options = {field.name: field.default for field in msgspec.structs.fields(struct) if not field.required}
    assert {name: parameters[name].default for name in options} == options
    assert all(parameter.kind is not parameter.VAR_KEYWORD for parameter in parameters.values())


def test_the_error_for_a_misspelled_option_of_a_server_names_the_right_one() -> None:
    misspelled: dict[str, Any] = {"max_body_byte": 1}
    with pytest.raises(TypeError, match=r"InferenceServer: max_body_byte= is not an option: did you mean max_body_bytes=\?"):
        InferenceServer(**misspelled)


def read_sentences(struct: type[msgspec.Struct]) -> dict[str, str]:
    """The sentence of each option in `help()`, by `name (type, default value)`."""
    documented: Any = InferenceServer if struct is ServerOptions else InferenceServer.register
    arguments = str(inspect.getdoc(documented)).partition("\nArgs:\n")[2].partition("\n\n")[0]
    entries = [" ".join(entry.split()) for entry in re.split(r"\n {4}(?! )", f"\n{arguments}") if ", default " in entry]
    return {said + ")": sentence for said, _, sentence in (entry.partition("): ") for entry in entries)}


@pytest.mark.parametrize("struct", STRUCTS)
def test_help_shows_each_option_with_its_type_and_default(struct: type[msgspec.Struct]) -> None:
    fields = [f"{field.name} ({field.type}, default {field.default!r})" for field in list_fields(struct).values()]
    assert list(read_sentences(struct)) == fields
    assert all(sentence.endswith(".") for sentence in read_sentences(struct).values())


def tabulate(struct: type[msgspec.Struct], needs: Mapping[str, str]) -> str:
    """The options of a struct as a table of Markdown, first those that everyone needs."""
    sentences = [re.split(r'(?<=\.) (?=[A-Z`"])', each)[0] for each in read_sentences(struct).values()]
    rows = {
        field.name: f"| `{field.name}=` | `{field.default!r}` | {needs.get(field.name)} | {sentence} |"
        for field, sentence in zip(list_fields(struct).values(), sentences, strict=True)
    }
    order = [name for need in NEEDED_BY for name in rows if needs.get(name) == need]
    return "\n".join(["| option | default | needed by | what it is for |", "|---|---|---|---|", *(rows[name] for name in order or rows)])


@pytest.mark.parametrize("struct", STRUCTS)
def test_the_documentation_has_the_table_of_all_options(struct: type[msgspec.Struct]) -> None:
    needs = dict(re.findall(r"^\| `(\w+)=` \|[^|]*\| ([a-z ]+) \|", PAGES[struct], re.MULTILINE))
    assert {name: needs.get(name) in NEEDED_BY for name in list_fields(struct)} == dict.fromkeys(list_fields(struct), True)
    assert tabulate(struct, needs) in TABLES.read_text(), f"the table should be:\n{tabulate(struct, needs)}"


def test_the_page_of_options_is_short() -> None:
    page = TABLES.read_text()
    assert len(page.split()) <= 900
    assert [cell for line in page.splitlines() if line[:1] == "|" for cell in line.split("|") if len(cell.split()) > 25] == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *((name[:-1], f"did you mean {name}=?") for name in list_fields(ModelOptions)),
        ("max_concurency", "did you mean max_concurrency=?"),
        ("device", "the options are version, inputs, "),
    ],
)
def test_the_error_for_a_misspelled_option_names_the_right_one(name: str, text: str) -> None:
    misspelled: dict[str, Any] = {name: 1}
    with pytest.raises(TypeError) as error:
        InferenceServer().register("m", lambda x: x, **misspelled)
    assert str(error.value).startswith(f"model 'm': {name}= is not an option: {text}")


def test_literals_are_checked_by_their_own_values() -> None:
    hint = get_args(get_type_hints(ModelOptions, include_extras=True)["run"])[0]
    assert get_origin(hint) is Literal
    check = list_fields(ModelOptions)["run"].check
    assert check is not None
    assert all(map(check.holds, get_args(hint)))
