"""The snippets of the READMEs and of the guide are run, as they are, and their tables, links and commands are looked at.

The snippets of hosts that not every environment has are run in hosts/test_readme.py.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import grpc
import httpx2
import numpy as np
import pandas as pd
import pytest
from PIL import Image
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from oip_asgi import Access, InferenceServer, OIPApp
from oip_asgi.client import Client as OurClient
from tests.support.asking import ask, error, outputs
from tests.support.grpc_asgi import ASGIClient
from tests.support.grpc_ways import Client, wire_request
from tests.support.processes import ROOT
from tests.support.readme import CURLS, README, READMES, SNIPPETS, TEXT
from tests.support.threads import serving
from tests.support.ways import EXTENSIONS, Request, over_asgi, over_wsgi


@pytest.fixture
def run_snippet(tmp_path: Path) -> Callable[[str], dict[str, Any]]:
    """Run the one snippet that holds a text, and give its names."""

    def run(containing: str) -> dict[str, Any]:
        [snippet] = [snippet for snippet in SNIPPETS if containing in snippet]
        file = tmp_path / "snippet.py"
        file.write_text(snippet)
        # Flask finds its folder by the file of the caller's module
        names: dict[str, Any] = {"__name__": "__main__", "__file__": str(file)}
        exec(compile(snippet, file, "exec", dont_inherit=True), names)
        return names

    return run


Run: TypeAlias = Callable[[str], dict[str, Any]]


KEY = (("x-api-key", "s3cret"),)


def test_the_first_snippet(run_snippet: Run) -> None:
    send = over_asgi(run_snippet("app.add_api_route(")["app"], "/v2")
    [(path, data)] = {curl for curl in CURLS if "5.1, 3.5" in curl[1]}  # here and in the guide
    assert "-H 'x-api-key: s3cret'" in README
    answer = send(Request("POST", path.removeprefix("/v2"), KEY, data.encode()))
    assert outputs(answer) == {"output_0": [0]}
    assert f"```json\n{answer.body.decode()}\n```" in README
    assert send(Request("GET", "", KEY)).body.startswith(b'{"name":"flowers",')
    [(path, data)] = [curl for curl in CURLS if curl[0].endswith("/iris/generate")]
    answer = send(Request("POST", path.removeprefix("/v2"), KEY, data.encode()))
    assert (answer.status, f"`{answer.body.decode()}`" in README) == (200, True)


def test_the_models_snippet(run_snippet: Run) -> None:
    server: InferenceServer = run_snippet('@server.model("scale")')["server"]
    assert outputs(ask(server, "scale", x=np.array([1.5], "f4"))) == {"scaled": [3.0]}
    assert outputs(ask(server, "remote", x=[1.5])) == {"x": [1.5], "agent": ["nobody"]}
    assert error(ask(server, "remote", {"parameters": {"timeout": 1000}}, x=[1.5]))[0] == 504


def test_the_snippets_of_content_types(run_snippet: Run) -> None:
    server: InferenceServer = run_snippet("async def greet")["server"]
    client = run_snippet("PandasCodec.encode_request")
    people = {"First Name": np.array(["Joanne", "Michael"], object), "Age": np.array([34, 12])}
    with serving(Starlette(routes=[Mount("/v2", OIPApp(server))])) as port:
        url = f"http://127.0.0.1:{port}"
        frame = client["score"](url, pd.DataFrame(people))
        [(path, body)] = [curl for curl in CURLS if "/score/" in curl[0]]
        by_hand = httpx2.post(url + path, content=body).json()
    assert frame.to_dict("list") == {"First Name": ["Joanne", "Michael"], "Age": [34, 12], "adult": [True, False]}
    assert [output["data"] for output in by_hand["outputs"]] == list(frame.to_dict("list").values())
    assert outputs(ask(server, "greet", names=np.array(["Joanne"], object))) == {"output_0": ["hello Joanne"]}
    assert outputs(ask(server, "oldest", **people)) == {"output_0": [34]}


def test_the_authentication_of_the_first_snippet(run_snippet: Run) -> None:
    send = over_asgi(run_snippet("app.add_api_route(")["app"], "/v2")
    for path in ("", "/", "/models"):
        assert send(Request("GET", path)).status == send(Request("GET", path, (("x-api-key", "s3cret?"),))).status == 401
        assert send(Request("GET", path, KEY)).status == 200
    for path in ("/health/live", "/health/ready", "/docs", "/docs/page.js", "/openapi.json"):
        assert send(Request("GET", path)).status == 200


def test_the_snippets_of_tests(run_snippet: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    app = ModuleType("app")
    app.__dict__.update(run_snippet("def make_app"))
    monkeypatch.setitem(sys.modules, "app", app)
    names = run_snippet("def test_double")
    with TestClient(app.make_app()) as http:
        for test in ("test_double", "test_double_refuses_integers"):
            names[test](OurClient("/v2", http=http))
        assert 'oip_requests_total{model="double"' in http.get("/metrics").text
    more = run_snippet("def test_a_stub")
    for test in ("test_the_model_alone", "test_a_stub", "test_with_asyncio"):
        more[test]()
    with run_snippet("def grpc_client")["grpc_client"](app.make_server()) as client:
        names["test_double"](client)


def test_the_snippet_of_the_client(run_snippet: Run) -> None:
    double = run_snippet("def double(url")["double"]
    with serving(run_snippet("def make_app")["make_app"]()) as port:
        assert double(f"http://127.0.0.1:{port}/v2", [1, 2]) == "[2. 4.]"
        assert double(f"http://127.0.0.1:{port}/v2", ["a"]) == "input 'x': data[0] is 'a': expected a number or None for FP32"
        assert double(f"http://127.0.0.1:{port}/v3", [1, 2]) == "404: Not Found"


def test_the_snippet_of_grpc(run_snippet: Run) -> None:
    names = run_snippet('@server.model("half")')
    names["grpc_server"].start()
    try:
        tensor = {"name": "x", "datatype": "FP32", "shape": [2], "contents": {"fp32_contents": [1, 3]}}
        response = Client(f"127.0.0.1:{names['port']}").ask("ModelInfer", wire_request("half", [tensor]))
        assert np.frombuffer(response.raw_output_contents[0], "<f4").tolist() == [0.5, 1.5]
        with pytest.raises(RuntimeError, match="Failed to bind to address"):  # a second server at the port
            grpc.server(ThreadPoolExecutor(1), options=names["options"]).add_insecure_port(f"127.0.0.1:{names['port']}")
    finally:
        names["grpc_server"].stop(0).wait()


def test_the_snippet_about_what_tritons_clients_ask(run_snippet: Run) -> None:
    send = over_asgi(run_snippet("ResponseCache(")["app"], "")
    image = {"name": "image", "datatype": "FP32", "shape": [1], "data": [0]}
    asked = {"inputs": [image], "outputs": [{"name": "scores", "parameters": {"classification": 2}}]}
    for _ in range(2):
        answer = send(Request("POST", "/models/pets/infer", (), json.dumps(asked).encode()))
        assert json.loads(answer.body)["outputs"][0]["data"] == ["0.700000:1:dog", "0.200000:2:fox"]
    [stats] = json.loads(send(Request("GET", "/models/pets/stats")).body)["model_stats"]
    assert (stats["execution_count"], stats["inference_stats"]["cache_hit"]["count"]) == (1, 1)
    assert json.loads(send(Request("GET", "")).body)["extensions"] == json.loads(EXTENSIONS)


def test_the_snippets_of_models_elsewhere(run_snippet: Run) -> None:
    for snippet, name in ((run_snippet('"http://triton:8000/v2", "bert"'), "bert"), (run_snippet("MODEL_SOCKET"), "embed")):
        [model] = snippet["server"].models()
        assert (model.name, model.state) == (name, "registered")


def test_the_snippet_of_rights(run_snippet: Run) -> None:
    server = run_snippet("def authorize(")["server"]
    server.register("iris", lambda x: x)
    send = over_asgi(OIPApp(server), "")
    asked = [
        send(Request("GET", path, [("x-api-key", key)])).status
        for key in ("ada-key", "")
        for path in ("/models/iris", "/models/iris/config")
    ]
    assert asked == [200, 403, 401, 401]


def test_the_snippets_of_users_of_the_host(run_snippet: Run) -> None:
    for names, over in ((run_snippet("Depends(find_user)"), over_asgi), (run_snippet("flask.g.user"), over_wsgi)):
        for name in ("iris", "other"):
            names["server"].register(name, lambda: 1)
        send = over(names["app"], "/v2")
        asked = [
            send(Request("POST", f"/models/{model}/infer", [("x-api-key", key)], b'{"inputs":[]}')).status
            for key in ("ada-key", "")
            for model in ("iris", "other")
        ]
        assert asked == [200, 403, 401, 401]
        assert [send(Request("GET", path)).status for path in ("/health/live", "/models/iris/ready")] == [200, 200]
        names["USERS"]["bob-key"] = "bob"  # who has no rights yet
        assert send(Request("GET", "/models/iris", [("x-api-key", "bob-key")])).status == 403


def test_the_snippet_of_the_page(run_snippet: Run) -> None:
    send = over_asgi(run_snippet("def find_price(")["app"], "/v2")
    assert b"<html" in send(Request("GET", "/docs")).body
    answer = send(Request("POST", "/models/price/generate", (), b'{"rooms": [2], "city": ["Ghent"], "garden": [true]}'))
    assert json.loads(answer.body) == {"model_name": "price", "euros": 2500.0}
    assert send(Request("POST", "/models/price/generate", (), b'{"rooms": [2], "city": ["Ulm"], "garden": [true]}')).status == 400


def test_the_snippet_of_pictures(run_snippet: Run) -> None:
    app = run_snippet("def make_gray(")["app"]
    send, file = over_asgi(app, "/v2"), BytesIO()
    Image.new("RGB", (2, 1), (255, 255, 255)).save(file, "PNG")
    text = b64encode(file.getvalue()).decode()
    tensor = {"name": "picture", "datatype": "BYTES", "shape": [1], "data": [text]}
    [answer] = outputs(send(Request("POST", "/models/gray/infer", (), json.dumps({"inputs": [tensor]}).encode())))["gray"]
    generated = send(Request("POST", "/models/gray/generate", (), json.dumps({"picture": text}).encode()))
    assert json.loads(generated.body) == {"model_name": "gray", "gray": answer}
    with OurClient("/v2", http=TestClient(app)) as client:
        response = client.infer("gray", {"picture": [file.getvalue()]})
    assert response["gray"].tolist() == [answer.encode()]
    [gray] = response.as_("gray", list[bytes])
    assert gray == b64decode(answer)
    with Image.open(BytesIO(gray)) as image:
        assert (image.mode, image.tobytes()) == ("L", b"\xff\xff")
    refused = send(Request("POST", "/models/gray/generate", (), b'{"picture": "AAAA"}'))
    assert error(refused) == (400, "send PNG or JPEG files")


def test_the_snippet_of_rights_in_django(run_snippet: Run) -> None:
    class User:
        async def ahas_perm(self, name: str) -> bool:
            return name == "shop.use_iris"

    class DjangoRequest:
        async def auser(self) -> User:
            return User()

    may = run_snippet("auser()")["may"]
    assert [asyncio.run(may(Access("infer", name, transport=DjangoRequest()))) for name in ("iris", "other")] == [True, False]


def test_the_snippet_of_when_not_to_use_it(run_snippet: Run) -> None:
    run_snippet("double(np.ones(2)).tolist() == [2, 2]")


def test_rows_of_the_guide(run_snippet: Callable[[str], dict[str, Any]]) -> None:
    run_snippet("class Customer:")


def test_the_snippet_of_estimators(run_snippet: Run) -> None:
    server = run_snippet("inputs=specs_of(X_train))")["server"]
    send = over_asgi(OIPApp(server), "")
    answered = send(Request("POST", "/models/churn/generate", (), b'{"plan": ["paid", "free"], "age": [20, 60]}'))
    assert json.loads(answered.body) == {"model_name": "churn", "output_0": ["stays", "leaves"]}
    refused = send(Request("POST", "/models/churn/generate", (), b'{"plan": 3, "age": 20}'))
    assert error(refused) == (400, "input 'plan': data is an integer: expected a string for BYTES")


def test_the_snippet_of_limits(run_snippet: Run) -> None:
    send = over_asgi(OIPApp(run_snippet("def embed(text")["server"]), "")
    assert json.loads(send(Request("POST", "/models/embed/generate", (), b'{"text": ["a", "abc"]}')).body)["output_0"] == [1, 3]
    refused = error(send(Request("POST", "/models/embed/generate", (), b" " * (16 * 2**20 + 1))))
    assert refused == (413, "the body is larger than 16777216 bytes, the most that this server takes (max_body_bytes)")


def test_the_snippet_of_what_does_not_work_shows_what_the_function_raised(run_snippet: Run) -> None:
    body = b'{"inputs": [{"name": "X", "datatype": "FP64", "shape": [1], "data": [1]}]}'
    refused = error(over_asgi(run_snippet("debug=True")["app"], "/v2")(Request("POST", "/models/iris/infer", (), body)))
    assert refused[0] == 500
    assert refused[1].startswith("model 'iris' failed: IndexError(")


def test_the_snippet_of_grpc_in_the_application(run_snippet: Run) -> None:
    tensor = {"name": "x", "datatype": "FP32", "shape": [2], "contents": {"fp32_contents": [1, 3]}}
    client = ASGIClient(run_snippet('register("twice"')["app"])
    response = client.ask("ModelInfer", wire_request("twice", [tensor]))
    assert np.frombuffer(response.raw_output_contents[0], "<f4").tolist() == [2, 6]


def test_the_snippet_of_models_that_are_seldom_called(run_snippet: Run) -> None:
    server = run_snippet("idle_unload=600")["server"]
    assert server.infer_sync("iris", {"x": np.ones((2, 4))}).outputs[0].array.shape == (2, 3)
    assert server.models()[0].state == "ready"
    server.stop()


def test_the_headers_of_the_guide(run_snippet: Run) -> None:
    server = run_snippet('context.response_headers["x-cost"]')["server"]
    answer = over_asgi(OIPApp(server), "")(Request("POST", "/models/summary/generate", (), b'{"text":["a text"]}'))
    assert (answer.status, answer.headers["x-cost"]) == (200, "6")
    assert answer.headers["server-timing"].startswith("queue;dur=")


def test_the_observer_of_the_guide_writes_a_line_for_each_inference(run_snippet: Run, capsys: pytest.CaptureFixture[str]) -> None:
    server = run_snippet("def audit(observation: Observation)")["server"]
    server.infer_sync("double", {"x": np.ones(1)}, id="7")
    server.start()
    server.stop()
    line = json.loads(capsys.readouterr().out)
    assert (line["model"], line["id"], line["status"]) == ("double", "7", 200)


def test_the_digest_of_the_guide_is_that_of_the_inputs(run_snippet: Run) -> None:
    [observation] = run_snippet("answered[0].inputs_sha256")["answered"]
    assert observation.request.inputs == []


def test_every_snippet_is_run() -> None:
    assert len(CURLS) == 6  # one is what the command prints, which tests/adapters/test_command.py sends; three are the same
    sources = [(ROOT / "tests" / name).read_text() for name in ("test_readme.py", "hosts/test_readme.py")]
    run = [text for _, text in re.findall(r"""(?:run_snippet|names_of)\((["'])(.*?)\1\)""", "".join(sources))]
    assert [snippet for snippet in SNIPPETS if not any(text in snippet for text in run)] == []


def test_the_commands_are_those_of_ci() -> None:
    text = (ROOT / "README.md").read_text()
    [first, second] = re.findall(r"^python -m pip .*$", text, re.MULTILINE)
    ci = (ROOT / ".ci" / "run").read_text()
    assert "README.md" in ci
    assert first.endswith("python examples/quickstart.py --check")
    assert second.endswith("python -m pytest")


def test_the_names_that_contributors_are_told_are_in_the_code() -> None:
    text = (ROOT / ".github" / "CONTRIBUTING.md").read_text()
    names = set(re.findall(r"`(_?[A-Z]\w+)`", text)) - {"ValueError"}
    assert {"RestRoute", "ROUTES", "_INPUT_CODECS", "ModelOptions"} <= names
    code = "".join(path.read_text() for path in (ROOT / "oip_asgi").rglob("*.py"))
    assert [name for name in names if not re.search(rf"^(class {name}|{name}: |{name} =)", code, re.MULTILINE)] == []


def test_the_folders_that_contributors_are_told_are_all_that_there_are() -> None:
    text = (ROOT / ".github" / "CONTRIBUTING.md").read_text()
    package = ROOT / "oip_asgi"
    there = {path.name for path in package.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    table = text.partition("| folder | what it knows |")[2].partition("\n\n")[0]
    told = set(re.findall(r"\]\(\.\./oip_asgi/([^)/]+)\)", table))
    assert there - told == {"__init__.py", "__main__.py"}


def test_who_decides_is_named_with_functions_and_files_that_there_are() -> None:
    text = (ROOT / ".github" / "CONTRIBUTING.md").read_text()
    table = text.partition("| who decides | where |")[2].partition("\n## ")[0]
    package = ROOT / "oip_asgi"
    files = set(re.findall(r"`([\w/]+\.(?:py|js))`", table))
    assert [file for file in files if not (package / file).exists()] == []
    functions = {name.rpartition(".")[2] for name in re.findall(r"`((?:[A-Z]\w+\.)?_?[a-z]\w+)`", table)} - {"def"}
    assert {"accept", "find_visible", "let_in", "_join_batch"} <= functions
    code = "".join(path.read_text() for path in package.rglob("*.py"))
    assert [name for name in functions if not re.search(rf"def {name}\(|^    {name}: ", code, re.MULTILINE)] == []
    places = [
        (name, file) for *names, file in re.findall(r"`([\w.]+)`(?:,? and `([\w.]+)`)? of `([\w/]+\.py)`", table) for name in names if name
    ]
    assert len(places) > 40
    for name, file in places:
        last = name.rpartition(".")[2]
        assert re.search(rf"(def|class) {last}\b|^\s*{last}\b[^\n]*[:=]", (package / file).read_text(), re.MULTILINE), (name, file)


def test_every_row_of_the_readmes_tables_has_as_many_cells_as_its_head() -> None:
    tables = re.findall(r"(?:^\|.*\n)+", TEXT, re.MULTILINE)
    assert len(tables) > 10
    for table in tables:
        head, *rows = [line.replace(r"\|", "").count("|") for line in table.splitlines()]
        assert rows == [head] * len(rows), table


def test_each_status_that_a_page_names_is_found_by_the_search_of_the_site() -> None:
    conf: dict[str, Any] = {}
    exec((ROOT / "examples/guide/conf.py").read_text(), conf)
    page, other = ["# A page\n\nIt is 504, or 401 at /v2.\n"], ["# Another\n\nIn 2026.\n"]
    conf["index_statuses"](None, "page", page)
    conf["index_statuses"](None, "other", other)
    assert page[0] == "# A page\n\n```{index} 401, 504\n```\n\nIt is 504, or 401 at /v2.\n"
    assert other == ["# Another\n\nIn 2026.\n"]


def test_the_site_names_the_path_of_what_it_does_not_have() -> None:
    conf: dict[str, Any] = {}
    exec((ROOT / "examples/guide/conf.py").read_text(), conf)
    links = ("../kserve", "../../README.md", "/clone/tests/lab/bench/README.md")
    paths = ["examples/kserve", "README.md", "tests/lab/bench/README.md"]
    assert [conf["find_path"]("/clone/examples/guide", link) for link in links] == paths


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 180


def test_the_first_screen_says_what_it_is_then_shows_code_proofs_and_one_picture() -> None:
    screen = README.partition("\n## ")[0]
    order = ["Open Inference Protocol", "python -m pip install", "```python", "\n- **", "<img "]
    assert list(map(screen.index, order)) == sorted(map(screen.index, order))
    bullets = re.findall(r"^- \*\*.*$", screen, re.MULTILINE)
    assert len(bullets) == 5
    assert [bullet for bullet in bullets if not re.search(r"\]\([^)]+\)", bullet)] == []  # each with its proof
    [(picture, height)] = re.findall(r'<img src="([^"]+)" height="(\d+)"', screen)
    assert (ROOT / picture).exists()
    assert int(height) <= 350
    assert len(screen.splitlines()) <= 34  # so the picture begins 705 pixels below the title, in a column of 838
    assert max(map(len, re.findall(r"```python\n(.*?)```", screen, re.DOTALL)[0].splitlines())) <= 98  # as wide as that column


def test_no_cell_of_the_readmes_tables_is_long() -> None:
    cells = [cell for line in README.splitlines() if line.startswith("|") for cell in line.strip("|").split(" | ")]
    assert len(cells) > 60
    assert [cell for cell in cells if len(cell.split()) > 25] == []


@pytest.mark.parametrize("page", sorted((ROOT / "examples/guide").glob("*.md")), ids=lambda path: path.name)
def test_a_page_of_the_guide_has_three_screens_at_most_and_stands_in_both_indexes(page: Path) -> None:
    assert len(page.read_text().splitlines()) <= 150
    assert f"](guide/{page.name})" in (ROOT / "examples/README.md").read_text()
    listed = re.findall(r"^[\w-]+$", (ROOT / "examples/guide/index.md").read_text(), re.MULTILINE)
    assert listed.count(page.stem) == (page.stem != "index")


SHORT = [
    *("models", "content-types", "estimators", "rows", "streams", "batches", "loading", "machines"),
    *("one-copy", "limits", "pictures", "grpc", "testing", "does-not-work", "clients", "page", "operations"),
    *("rights", "hosts", "proxies", "observers", "from-mlserver", "from-triton", "first-answer", "adapters"),
    *("when-not", "languages", "docker", "command"),
]
"""The pages that keep to how a page is written."""


@pytest.mark.parametrize("name", SHORT)
def test_a_page_says_what_it_is_for_then_shows_code_and_has_nothing_that_must_be_read_twice(name: str) -> None:
    text = (ROOT / f"examples/guide/{name}.md").read_text()
    title, purpose, code, *_ = re.split(r"\n\n", text, maxsplit=3)
    assert (title[:2], code[:3]) == ("# ", "```")
    assert count_sentences(purpose) <= 2
    blocks = re.split(r"\n{2,}", re.sub(r"```.*?```", "```", text, flags=re.DOTALL).strip())
    tables = [block for block in blocks if block.startswith("|")]
    lists = [block for block in blocks if re.match(r"- |\d+\. ", block)]
    cells = [cell for table in tables for line in table.splitlines() for cell in line.replace(r"\|", "").split("|")]
    assert [cell for cell in cells if len(cell.split()) > 25] == []
    items = [item for block in lists for item in re.split(r"\n(?=- |\d+\. )", block)]
    assert [item for item in items if len(item.split()) > 60] == []
    assert [block for block in blocks if block not in tables + lists and count_sentences(block) > 4] == []


def count_sentences(text: str) -> int:
    return len(re.findall(r"[.?!][*)]*(?=\s|$)", re.sub(r"`[^`]*`", "code", text)))


@pytest.mark.parametrize("path", READMES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading_that_exist(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    for link in re.findall(r"\]\((?!https?://)([^)\s]+)\)", text):
        name, _, anchor = link.partition("#")
        target = path.parent / name if name else path
        assert target.exists(), link
        if anchor:
            headings = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
            assert anchor in [re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings], link


def test_the_snippets_of_streams(run_snippet: Run) -> None:
    names = run_snippet('@server.model("writer")')
    got = over_asgi(names["app"], "/v2")(Request("POST", "/models/writer/generate_stream", (), b'{"text_input": "to be"}'))
    assert got.body == b"".join(b'data: {"model_name":"writer","text_output":"%b"}\n\n' % word for word in (b"to", b"be"))
    first_words = run_snippet("def first_words")["first_words"]
    first_words.__globals__["server"] = names["server"]
    assert asyncio.run(first_words("to be or not to be", 3)) == ["to", "be", "or"]


def test_the_snippets_of_those_who_come_from_other_servers(run_snippet: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = {"name": "image", "datatype": "FP32", "shape": [1, 3], "data": [0, 2, 1]}
    asked = {"inputs": [image], "outputs": [{"name": "scores", "parameters": {"classification": 1}}]}
    answer = over_asgi(run_snippet("def load_pets")["app"], "/v2")(Request("POST", "/models/pets/infer", (), json.dumps(asked).encode()))
    assert outputs(answer) == {"scores": ["2.000000:1:dog"]}
    monkeypatch.chdir(tmp_path)
    body = b'{"inputs":[{"name":"texts","datatype":"BYTES","shape":[2],"data":["a","bcd"]}]}'
    answer = over_asgi(run_snippet("register_folder(")["app"], "/v2")(Request("POST", "/models/lengths/infer", (), body))
    assert outputs(answer) == {"output-0": [1, 3]}
    del sys.modules["lengths"]
    body = b'{"inputs":[{"name":"x","datatype":"FP64","shape":[1,2],"data":[3,4]}]}'
    answer = over_asgi(run_snippet("class Sums")["app"], "/v2")(Request("POST", "/models/sums/versions/v1/infer", (), body))
    assert outputs(answer) == {"y": [11.0]}


def test_the_snippet_of_batches(run_snippet: Run) -> None:
    names = run_snippet('@server.model("norm"')
    send = over_asgi(names["app"], "/v2")

    def infer(row: str) -> Request:
        body = b'{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[%b]}]}' % row.encode()
        return Request("POST", "/models/norm/infer", (), body)

    with ThreadPoolExecutor(3) as threads:
        first, second, third = threads.map(send, map(infer, ("3,4,0,0", "null,0,0,0", "0,0,0,2")))
    assert (outputs(first), error(second)[0], outputs(third)) == ({"output_0": [5.0]}, 500, {"output_0": [2.0]})
