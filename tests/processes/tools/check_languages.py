"""The programs of the guide's page on other languages are run against a server. A language that is not installed is skipped."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import ROOT, Served, environment, serving

TEXT = (ROOT / "examples/guide/languages.md").read_text()
PROGRAMS = dict(re.findall(r"```(javascript|java|go|rust|ruby|r)\n(.*?)```", TEXT, re.DOTALL))
[MODEL] = re.findall(
    r"```python\n(.*?)```", (ROOT / "examples/guide/first-answer.md").read_text().partition("Choose your host")[0], re.DOTALL
)
RUN = {
    "javascript": ("iris.mjs", ["node", "iris.mjs"]),
    "java": ("Iris.java", ["java", "Iris.java"]),
    "go": ("iris.go", ["go", "run", "iris.go"]),
    "rust": ("src/main.rs", ["cargo", "run", "--quiet"]),
    "ruby": ("iris.rb", ["ruby", "iris.rb"]),
    "r": ("iris.R", ["Rscript", "iris.R"]),
}
"""The file of each program, and what runs it."""

ANSWER = '{"model_name":"iris","outputs":[{"name":"output_0","shape":[1],"datatype":"INT64","data":[0]}]}'
REFUSED = '{"error":"send the header x-api-key"}'


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("site")
    (folder / "models.py").write_text(MODEL)
    command = ["python", "-m", "oip_asgi", "--app-dir", str(folder), "models:server", "--port", "PORT"]
    with serving(command, folder / "log", {"OIP_API_KEY": "s3cret"}) as served:
        yield served


def run(language: str, program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    file, command = RUN[language]
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    env = {**environment(), **(add_crates(program, folder) if language == "rust" else {})}
    (folder / file).write_text(program)
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def add_crates(program: str, folder: Path) -> dict[str, str]:
    """Make the program's package, once, with the crates that its first line names; those of Debian where they are installed."""
    crates = Path("/usr/share/cargo/registry")
    home = folder / "cargo"
    env = {"CARGO_HOME": str(home)} if crates.exists() else {}
    if not (folder / "Cargo.toml").exists():
        home.mkdir()
        (home / "config.toml").write_text(f'[source.crates-io]\nreplace-with = "debian"\n[source.debian]\ndirectory = "{crates}"\n')
        adding = program.partition("\n")[0].removeprefix("// ")
        made = subprocess.run(
            ["sh", "-c", f"cargo init --vcs none --name iris && {adding}"], cwd=folder, env={**environment(), **env}, check=False
        )
        if made.returncode != 0:
            pytest.skip("there are no crates")
    return env


@pytest.mark.parametrize("language", PROGRAMS)
def test_a_program_prints_the_answer_and_fails_if_it_is_refused(language: str, site: Served, tmp_path: Path) -> None:
    program = PROGRAMS[language].replace(":8000", f":{site.port}")
    ran, refused = (run(language, each, tmp_path) for each in (program, program.replace("s3cret", "other")))
    if language == "java":  # which has no reader of JSON
        assert (ran.stdout, refused.stdout) == (f"200 {ANSWER}\n", f"401 {REFUSED}\n")
    else:
        assert (ran.stdout.strip(), refused.stdout.strip(), ran.returncode, refused.returncode == 0) == ("0", "", 0, False), ran.stderr
        assert re.search("401" if language == "rust" else "x-api-key", refused.stderr), refused.stderr


def test_the_line_for_curl(site: Served) -> None:
    [line] = re.findall(r"^curl .*$", TEXT, re.MULTILINE)
    ran = subprocess.run(["sh", "-c", line.replace(":8000", f":{site.port}")], capture_output=True, text=True, check=True)
    assert ran.stdout == ANSWER


def test_each_language_of_the_page_is_run() -> None:
    assert set(PROGRAMS) == set(RUN)
