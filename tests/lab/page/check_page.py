"""The page of the models in a real browser: Chromium, without a screen.

Run by `tox -e page`. It is the `chromium` on the PATH, or else Debian's package in the folder CHROMIUM, which tox has unpacked. With the
variable SCREENSHOTS, pictures of the page are written to that folder, to be looked at.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from playwright.sync_api import Route, expect

from oip_asgi import TensorSpec
from oip_asgi.grpc import add_to_server
from tests.support.described import LARGE
from tests.support.page import Show, answer_of, code_of, copied_from, ran_in, seen_by, send, turn_to, write_json
from tests.support.page_site import MARKUP, make_server
from tests.support.processes import Served

PLACES = ["/v2/docs", "/v2/docs/", "/shop/v2/docs", "/shop/v2/docs/"]


def printed_by(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("place", PLACES)
def test_the_page_loads_and_a_model_answers(site: Served, show: Show, place: str) -> None:
    page = show.open(place)
    expect(page.locator("h2")).to_have_text("iris")
    expect(page).to_have_title("iris · described")
    expect(page.locator("#server")).to_have_text("described")
    expect(page.locator("#state")).to_have_text("ready")
    expect(page.locator("#inputs td")).to_have_text(["x", "FP32", "[-1, 4]"])
    expect(page.locator("#outputs td")).to_have_text(["label", "INT64", "[-1]"])
    send(page)
    expect(page.locator("#size")).to_have_text(re.compile(r"^round trip [\d.]+\sm?s, 92 bytes$"))
    expect(page.locator("#requests li")).to_have_text(re.compile(r"^200irisinfer, round trip [\d.]+\sm?s\d\d:\d\d:\d\d$"))
    assert answer_of(page) == {"model_name": "iris", "outputs": [{"name": "label", "shape": [1], "datatype": "INT64", "data": [0]}]}
    expect(page.locator("#totals")).to_contain_text(re.compile(r"0 running, 0 waiting\.\s+Requests since the start: \d+ answered"))
    expect(page.locator("#options tr").first).to_have_text("Calls of the model at once max_concurrency=up to 40")
    mount = site.url + place.partition("/docs")[0]
    assert all(url.startswith(mount + "/") for url in show.urls)


def test_the_numbers_are_there_with_the_answer_and_the_plots_once_they_show_something(site: Served, show: Show) -> None:
    page = show("exact")
    expect(page.locator("#totals")).to_have_text(re.compile("Requests since the start: none"))
    for count in (1, 2):
        send(page)
        expect(page.locator("#totals")).to_contain_text(f"Requests since the start: {count} answered", timeout=1000)
    told = r"^2 requests in the last (\d+ s|second): on average [\d.]+\sm?s in the server\.\s+Now: 0 running"
    expect(page.locator("#totals")).to_have_text(re.compile(told))
    expect(page.locator("#numbers")).to_be_hidden()
    expect(page.locator("#plots")).to_be_hidden()
    for _ in range(3):
        seen_by(page)
    told = r"^Requests in the last (\d+\ss|second), without refused ones; times within 5\s%$"
    expect(page.locator("#numbers caption")).to_have_text(re.compile(told))
    page.request.post(f"{site.url}/v2/models/exact/infer", data={"inputs": []})
    expect(page.locator("#totals")).to_contain_text("Requests since the start: 6, of them 5 answered, 1 invalid.")
    expect(page.locator("#numbers tr").first).to_have_text("p50slowest")
    expect(page.locator("#numbers tr").nth(1)).to_have_text(re.compile(r"^Time in the server[\d.]+\sms[\d.]+\sms$"))
    for _ in range(40):
        if page.locator("#plots").is_hidden():
            seen_by(page)
            page.wait_for_timeout(500)
    expect(page.locator("#plots")).to_be_visible()
    expect(page.locator("#rate")).to_have_text(re.compile("[0-9.]+"))
    expect(page.locator("#plots figcaption").first).to_have_text(re.compile(r"^Requests per second [\d.]+ now\s*peak [\d.]+$"))
    latencies = re.compile(r"Time in the server, p50, in the last \d+ s: last .*\sms, peak .*\sms")
    expect(page.get_by_role("img", name=latencies)).to_be_visible()
    caption = re.compile(r"^p50 in the server [\d.]+\sms last\s*peak [\d.]+\sms$")
    expect(page.locator("#plots figcaption").nth(1)).to_have_text(caption)
    one = {"name": "x", "shape": [1], "datatype": "INT64", "data": [1]}
    for _ in range(100):
        page.request.post(f"{site.url}/v2/models/exact/infer", data={"inputs": [one]})
    expect(page.locator("#numbers tr").first).to_have_text("p50p99")
    page.set_viewport_size({"width": 360, "height": 740})
    assert page.locator("#numbers").evaluate("table => table.offsetWidth <= table.parentElement.clientWidth - 20")
    turn_to(page, "people")
    page.click("#send")
    called = r"Calls of the model since the start: \d+, with [\d.]+ rows?( on average)?\."
    expect(page.locator("#totals")).to_contain_text(re.compile(called))


def test_what_goes_on_is_seen_to_go_on(show: Show) -> None:
    page = show("churn", viewport={"width": 360, "height": 740})
    more = page.get_by_role("button", name="Show all")
    docstring, rows = page.locator("#docstring"), page.locator("#fields .scroll")
    expect(more).to_be_hidden()
    expect(rows).to_have_attribute("data-more", "")
    page.get_by_role("button", name="Add a row").click()
    expect(page.locator("#fields thead th")).to_have_text(["row 1", "row 2"])
    expect(rows).to_have_attribute("data-more", "")  # below the other one
    page.set_viewport_size({"width": 1280, "height": 900})
    page.get_by_role("button", name="Add a row").click()
    expect(rows).to_have_attribute("data-more", "left")  # the new row is seen
    rows.evaluate("box => { box.scrollLeft = 0; }")
    expect(rows).to_have_attribute("data-more", "right")
    page.set_viewport_size({"width": 360, "height": 740})
    page.evaluate("location.hash = 'model=explained'")
    expect(docstring.locator("p").first).to_be_visible()
    expect(docstring.locator("p").first).to_have_css("border-top-width", "0px")  # a paragraph is no box
    expect(docstring.locator("h3")).to_be_hidden()
    expect(docstring).to_have_attribute("data-more", "")
    more.click()
    expect(docstring.locator("h3")).to_have_text("Parameters")
    expect(docstring.locator("h3")).to_be_visible()
    expect(docstring.locator("pre")).to_be_visible()
    page.get_by_role("button", name="Show less").click()
    expect(docstring.locator("h3")).to_be_hidden()


def test_a_page_that_nothing_happens_to_draws_nothing(show: Show) -> None:
    count = "requestAnimationFrame = (draw) => { drawn += 1; return ask(draw); };"
    page = show("iris", script=f"globalThis.drawn = 0; const ask = requestAnimationFrame; {count}")
    before = page.evaluate("drawn")
    page.wait_for_timeout(3000)
    assert page.evaluate("drawn") - before < 20  # the numbers come each two seconds


def test_the_models_that_are_not_ready_can_be_listed_alone(show: Show) -> None:
    page = show.open("/v2/docs")
    only = page.get_by_label(re.compile(r"Not ready only \(\d+\)$"))
    only.check()
    expect(page.locator("#models a").first).to_have_text("not loaded unavailable")
    assert page.locator("#models a").count() < 4
    only.uncheck()
    expect(page.locator("#models a").first).to_have_text("iris")
    page.fill("#filter", "no such")
    expect(page.locator("#models li")).to_have_text("No model matches.")
    page.fill("#filter", "Loads-ONCE")
    expect(page.locator("#models a")).to_have_text("loads once")
    page.press("#filter", "Enter")
    expect(page.locator("h2")).to_have_text("loads once")
    page.fill("#filter", "")
    names = page.locator("#models a").count()
    expect(page.locator("#ready")).to_have_text(re.compile(rf"^\d+ of {names} ready$"))  # one of them has three versions


def test_the_link_to_the_document_works(site: Served, show: Show) -> None:
    for place in PLACES:
        page = show.open(place, refused=True)  # the document has no icon
        with page.expect_navigation():
            page.click("text=OpenAPI")
        assert page.url == site.url + place.partition("/docs")[0] + "/openapi.json"


def test_errors_are_shown(show: Show) -> None:
    page = show("iris", refused=True)
    write_json(page, '{"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}]}')
    page.click("#send")
    expect(page.locator("#answer .badge")).to_have_text("400 Bad Request")
    expect(page.locator("#answer .failed")).to_have_text("input 'x' has shape [1, 3]: expected [-1, 4]")
    write_json(page, '{"id": 5, "inputs": []}')
    page.click("#send")
    expect(page.locator("#answer .failed")).to_have_text("id: expected str | null, got int")
    page.click("#reset")
    send(page)
    page.get_by_role("link", name="raises", exact=True).click()
    expect(page.locator("h2")).to_have_text("raises")
    page.click("#send")
    expect(page.locator("#answer .failed")).to_have_text("model 'raises' failed: see the server's log")
    expect(page.locator("#hint")).to_be_hidden()  # its outputs are not declared, but that is not what failed
    page.click("text=not loaded")
    expect(page.locator("#state")).to_have_text("unavailable")
    expect(page.locator("#reason")).to_have_text("load failed, see the server's log")
    page.evaluate("location.hash = 'model=nobody'")
    expect(page.locator("#message")).to_have_text('There is no model "nobody".')
    # what Chromium itself says of an error's status


def test_each_model_shows_and_answers(show: Show) -> None:
    page = show.open("/v2/docs")
    expect(page.locator("#models a").first).to_be_visible()
    names = [name for name in page.locator("#models a").all_inner_texts() if not name.startswith(("raises", "not loaded", "breaks"))]
    assert MARKUP in names
    assert len(names) >= 18
    for name in names:
        page.get_by_role("link", name=name, exact=True).click()
        expect(page.locator("h2")).to_have_text(name)
        send(page)
        if name == LARGE:
            assert answer_of(page)["outputs"][0]["data"] == [0]


def test_versions_can_be_chosen(show: Show) -> None:
    page = show.open("/v2/docs#model=org%2Fscorer&version=9")
    expect(page.locator("#chosen-version")).to_have_value("9")
    expect(page.locator("#chosen-version option")).to_have_text(["default (10)", "1", "9", "10"])
    expect(page.locator("#inputs td").last).to_have_text("[9]")
    page.select_option("#chosen-version", "1")
    expect(page.locator("#inputs td").last).to_have_text("[1]")
    send(page)
    assert answer_of(page)["model_version"] == "1"
    page.go_back()
    expect(page.locator("#inputs td").last).to_have_text("[9]")
    page.select_option("#chosen-version", "default (10)")
    expect(page.locator("#inputs td").last).to_have_text("[10]")
    expect(page.locator("#chosen-version option").first).to_have_text("default (10)")
    assert page.evaluate("location.hash") == "#model=org%2Fscorer"


@pytest.mark.parametrize("mount", ["/v2", "/shop/v2"])
def test_the_address_is_read_once(site: Served, show: Show, mount: str) -> None:
    page = show.open(f"{site.url}{mount}/docs#model=org%2Fscorer&version=9")
    address = f"{mount}/models/org%2Fscorer/versions/9/"
    action = page.get_by_label(f"POST {address}", exact=True)
    expect(page.locator(".target label")).to_have_text(f"POST {address}")
    for chosen in ("generate", "infer"):
        action.select_option(chosen)
        with page.expect_request(lambda request: request.method == "POST" and "/models/" in request.url) as asked:
            page.click("#send")
        assert asked.value.url == f"{site.url}{address}{chosen}"
    [label, select] = [page.locator(place).bounding_box() for place in (".target label", "#action")]
    assert label is not None
    assert select is not None
    assert 0 <= select["x"] - label["x"] - label["width"] < 8  # as one


def test_the_form_of_one_model_is_not_sent_to_another(show: Show) -> None:
    page = show("double")
    held: list[Route] = []
    page.route("**/v2/models/iris", lambda route: held.append(route))
    page.evaluate("location.hash = 'model=iris'")
    expect(page.locator("#model")).to_have_js_property("inert", True)
    held[0].continue_()
    expect(page.locator("h2")).to_have_text("iris")
    expect(page.locator("#model")).to_have_js_property("inert", False)


def test_the_lines_for_the_shell_and_for_python_do_what_the_form_does(site: Served, show: Show) -> None:
    page = show("exact")
    tensor = '{"name": "x", "shape": [1], "datatype": "INT64", "data": [9007199254740993]}'
    body = '{"id": "it\'s é \\"1\\" \\u2028 \\\\ true", "parameters": {"a": true, "b": null}, "inputs": [' + tensor + "]}"
    write_json(page, body.replace(', "b": null', ""))
    page.locator("summary").click()
    page.fill("#headers", "X-Key: it's secret")
    with page.expect_request("**/repository/index") as asked:
        page.get_by_role("button", name="Apply").click()
    assert asked.value.headers["x-key"] == "it's secret"  # as a host may ask for it before it shows anything
    send(page)
    expected = answer_of(page)
    assert expected["id"] == 'it\'s é "1" \u2028 \\ true'
    assert expected["outputs"][0]["data"] == [9007199254740993]
    codes = {language: code_of(page, language) for language in ("curl", "oip_asgi", "httpx2", "tritonclient", "fetch", "gRPC")}
    assert all("X-Key" in code for code in codes.values())
    assert json.loads(printed_by("sh", "-c", codes["curl"])) == expected
    assert eval(printed_by(sys.executable, "-c", codes["httpx2"])) == expected
    assert printed_by(sys.executable, "-c", codes["oip_asgi"]) == "y [9007199254740993]\n"
    assert printed_by(sys.executable, "-c", codes["tritonclient"]) == "y [9007199254740993]\n"
    assert ran_in(page, codes["fetch"])["id"] == expected["id"]
    show.console.clear()  # which it has printed
    with grpc_site() as port:
        address = site.url.removeprefix("http://")
        assert address in codes["gRPC"]
        code = codes["gRPC"].replace(address, f"127.0.0.1:{port}").replace("X-Key", "x-key")
        assert printed_by(sys.executable, "-c", code) == "y [9007199254740993]\n"


def test_the_command_for_the_shell_has_a_line_for_each_tensor(site: Served, show: Show) -> None:
    page = show("people")
    age = '{"name":"age", "shape":[1], "datatype":"INT64", "data":[9007199254740993]}'
    city = r'{"name":"city", "shape":[1], "datatype":"BYTES", "data":["it\u0027s, {\"Bern\"}\n!! $HOME \\"]}'
    write_json(page, '{"id": "[{ , }]", "parameters": {"a": 1, "b": "it\'s"}, "inputs": [' + age + ",\n\n" + city + "]}")
    code = copied_from(page, "section:has(#code)")
    assert code.splitlines() == [
        f"curl -sS '{site.url}/v2/models/people/infer' \\",
        "  -H 'Content-Type: application/json' \\",
        "  --data-binary '{",
        '  "id": "[{ , }]",',
        """  "parameters": {"a": 1, "b": "it'\\''s"},""",
        '  "inputs": [',
        '    {"name": "age", "shape": [1], "datatype": "INT64", "data": [9007199254740993]},',
        r"""    {"name": "city", "shape": [1], "datatype": "BYTES", "data": ["it'\''s, {\"Bern\"}\n!! $HOME \\"]}""",
        "  ]",
        "}'",
    ]
    send(page)
    pasted = subprocess.run(["bash", "--norc", "-i"], input=code + "\n", capture_output=True, text=True, check=True, start_new_session=True)
    assert json.loads(pasted.stdout) == answer_of(page)
    page.select_option("#action", "generate")
    write_json(page, '{"age": [1], "city": ["Bern"]}')
    code = code_of(page, "curl")
    assert code.splitlines()[2:] == ["  --data-binary '{", '  "age": [1],', '  "city": ["Bern"]', "}'"]
    assert json.loads(printed_by("sh", "-c", code))["line"] == "Bern 1"


@contextmanager
def grpc_site() -> Iterator[int]:
    server = grpc.server(ThreadPoolExecutor(4))
    add_to_server(make_server(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield port
    finally:
        server.stop(0).wait()


def test_the_lines_for_a_stream(site: Served, show: Show) -> None:
    page = show("chat")
    expect(page.locator("#code")).to_contain_text("infer_stream")
    for language, command in (("curl", ["sh", "-c"]), ("httpx2", [sys.executable, "-c"])):
        assert printed_by(*command, code_of(page, language)).count("data: {") == 3
    assert printed_by(sys.executable, "-c", code_of(page, "oip_asgi")).count("word [b'text ") == 3
    assert "text 0" in ran_in(page, code_of(page, "fetch"))
    show.console.clear()  # which it has printed
    expect(page.get_by_role("tab", name="tritonclient")).to_have_count(0)
    with grpc_site() as port:
        code = code_of(page, "gRPC").replace(site.url.removeprefix("http://"), f"127.0.0.1:{port}")
        assert printed_by(sys.executable, "-c", code).count("word [b'text ") == 3


def test_an_undeclared_model_is_told_what_to_declare(show: Show) -> None:
    page = show("double")
    expect(page.locator("#hint")).to_contain_text("the example is a guess")
    expect(page.locator("#inputs td")).to_have_text("Not declared.")
    page.get_by_label("datatype of x").select_option("INT64")
    page.locator("#fields textarea").fill("1 2\n3 4")
    page.click("#send")
    declared = 'inputs=[TensorSpec("x", "INT64", [-1, 2])], outputs=[TensorSpec("output_0", "INT64", [-1, 2])]'
    expect(page.locator("#declaration")).to_have_text(declared)
    expect(page.locator("#declare h4")).to_have_text("What to declare, guessed from this answer")
    expect(page.locator("#declare p")).to_contain_text("Check it")
    page.set_viewport_size({"width": 360, "height": 740})
    assert page.locator("#declaration").evaluate("code => code.scrollWidth <= code.clientWidth")  # nothing is at its side
    turn_to(page, "add")
    page.click("#send")
    expect(page.locator("#declaration")).to_be_visible()
    lines = page.locator("#declaration").inner_text().splitlines()
    assert lines[:2] == ["inputs=[", '    TensorSpec("x1", "FP32", [-1]),']
    eval(f"dict({' '.join(lines)})", {"TensorSpec": TensorSpec})  # it is Python
    turn_to(page, "iris")
    send(page)
    expect(page.locator("#declaration")).to_be_hidden()


@pytest.mark.parametrize("place", ["", "#model=iris"])
def test_the_header_is_asked_for_where_the_host_wants_one(show: Show, place: str) -> None:
    def protect(route: Route) -> None:
        is_open = "/docs" in route.request.url and "state.json" not in route.request.url
        if is_open or route.request.headers.get("x-api-key") == "secret":
            route.continue_()
        else:
            route.fulfill(status=401, json={"error": "send the header x-api-key"})

    page = show.open(f"/v2/docs{place}", {"**/v2/**": protect}, refused=True)
    expect(page.locator("#headers")).to_be_focused()
    if not place:
        expect(page.locator("h2")).to_have_text("iris")  # the page holds what it shows first
        expect(page.locator("#totals")).to_have_text("401: send the header x-api-key")
    expect(page.locator("#message")).to_contain_text("401: send the header x-api-key")
    page.click("summary")
    page.wait_for_timeout(2500)  # the numbers are asked for again
    expect(page.locator("#headers")).to_be_hidden()
    page.click("summary")
    page.fill("#headers", "x-api-key: wrong")
    page.keyboard.press("Tab")
    expect(page.locator("#headers")).to_be_focused()
    page.fill("#headers", "nonsense")
    page.keyboard.press("Tab")
    told = '"nonsense" is no header: write its name, a colon and its value, such as x-api-key: secret'
    expect(page.locator("#no-header")).to_have_text(told)
    expect(page.locator("#headers")).to_be_visible()
    page.fill("#headers", "x-api-key: secret")
    page.keyboard.press("Tab")
    expect(page.locator("#no-header")).to_be_hidden()
    expect(page.locator("#message")).to_be_hidden()
    expect(page.locator("#headers")).to_be_hidden()  # it is one line again
    expect(page.locator("summary")).to_be_focused()
    expect(page.locator("summary")).to_have_text("API key: sends x-api-key")
    send(page)


@pytest.mark.parametrize(
    ("scheme", "header", "sent"),
    [
        ({"type": "apiKey", "in": "header", "name": "X-Token"}, "x-token", "se cret"),
        ({"type": "http", "scheme": "bearer"}, "authorization", "Bearer se cret"),
    ],
)
def test_the_key_alone_is_typed_where_openapi_names_its_header(show: Show, scheme: dict[str, str], header: str, sent: str) -> None:
    def describe(route: Route) -> None:
        document = route.fetch().json()
        document["components"]["securitySchemes"] = {"key": scheme}
        route.fulfill(json=document)

    page = show("greet", {"**/openapi.json": describe})
    page.locator("summary").click()
    page.fill("#headers", "se cret")
    with page.expect_request("**/repository/index") as asked:
        page.get_by_role("button", name="Apply").click()
    assert asked.value.headers[header] == sent


def test_the_page_is_not_empty_before_it_has_asked_anything(site: Served, show: Show) -> None:
    page = show.open("about:blank")
    page.route("**/v2/**", lambda route: route.continue_() if re.search(r"/docs(/\w+\.\w+)?$", route.request.url) else None)
    page.goto(f"{site.url}/v2/docs", wait_until="commit")
    expect(page.locator("h2")).to_have_text("iris", timeout=15_000)
    expect(page.locator("#inputs td")).to_have_text(["x", "FP32", "[-1, 4]"])
    expect(page.locator("#code")).to_contain_text("/v2/models/iris/infer")
    expect(page.locator("#ready")).to_have_text(re.compile(r"\d+ of \d+ ready"))
    page.unroute_all(behavior="ignoreErrors")


def test_the_keyboard_is_enough(show: Show) -> None:
    page = show("iris")
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    for _ in range(6):
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "all datatypes"
    page.keyboard.press("Enter")
    expect(page.locator("h2")).to_have_text("all datatypes")
    assert page.evaluate("document.activeElement.textContent") == "all datatypes"
    page.focus("#with-fields")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#with-json")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.locator("#body")).to_be_focused()
    page.keyboard.press("Control+Enter")
    expect(page.locator("#answer .badge")).to_have_text("200 OK")
    page.focus("#filter")
    page.keyboard.type("SCOR")
    expect(page.locator("#models a")).to_have_text(["org/scorer"])


def test_a_phone(show: Show) -> None:
    phone: dict[str, Any] = {"viewport": {"width": 360, "height": 740}, "device_scale_factor": 2, "is_mobile": True, "has_touch": True}
    page = show.open("/v2/docs", **phone)
    for name in ("all datatypes", "org/scorer", MARKUP, LARGE, "greet"):
        page.get_by_role("button", name=re.compile(r"^Models \(")).tap()
        page.get_by_role("link", name=name, exact=True).tap()
        expect(page.locator("h2")).to_have_text(name)
        page.locator("#send").tap()
        expect(page.locator("#answer .badge")).to_have_text("200 OK")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, name


def test_dark(show: Show) -> None:
    page = show.open("/v2/docs", color_scheme="dark")
    send(page)
    for element in ("html", "section", "#code", "textarea", "select"):
        color = page.locator(element).first.evaluate("element => getComputedStyle(element).backgroundColor")
        assert max(int(part) for part in color.removeprefix("rgb(").removesuffix(")").split(",")) < 60, (element, color)


def test_a_request_is_carried_by_a_link_and_found_among_the_last(show: Show) -> None:
    page = show.open("/v2/docs#model=iris")
    page.get_by_label("x FP32").fill("9 0 0 0\n0 0 9 0")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy link").click()
    expect(page.locator("#link")).to_have_text("Copied")
    link = str(page.evaluate("navigator.clipboard.readText()"))
    other = show.open(link)
    expect(other.get_by_label("x FP32")).to_have_value("9, 0, 0, 0\n0, 0, 9, 0")
    assert seen_by(other) == [0, 2]
    assert seen_by(page) == [0, 2]
    page.select_option("#action", "generate")
    send(page)
    page.get_by_role("link", name="scalar", exact=True).click()
    expect(page.locator("h2")).to_have_text("scalar")
    expect(page.locator("#requests li")).to_have_text([re.compile("^200irisgenerate, "), re.compile("^200irisinfer, ")])
    page.locator("#requests a").nth(1).click()
    expect(page.locator("h2")).to_have_text("iris")
    expect(page.locator("#action")).to_have_value("infer")
    expect(page.get_by_label("x FP32")).to_have_value("9, 0, 0, 0\n0, 0, 9, 0")
    for _ in range(12):
        seen_by(page)
    expect(page.locator("#requests li")).to_have_count(10)


def test_a_server_that_is_gone_is_told(show: Show) -> None:
    page = show("iris", refused=True)
    page.route("**/v2/models/iris/infer", lambda route: route.abort())
    page.click("#send")
    expect(page.locator("#answer .failed")).to_contain_text("The request failed")
    page.route("**/repository/index", lambda route: route.abort())
    expect(page.locator("#message")).to_contain_text("The server does not answer.", timeout=20_000)
