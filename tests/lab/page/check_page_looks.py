"""How the page looks in a real browser: what is seen whole, where it ends, and what can be read. Run by `tox -e page`, as check_page is."""

from __future__ import annotations

import base64
from itertools import pairwise
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.support.page import Show, box_of, send, show_models, turn_to, write_json

PHONE = {"width": 360, "height": 740}
SIZES = [{"width": 1280, "height": 900}, {"width": 1000, "height": 800}, PHONE]
MODELS = ["iris", "people", "churn", "species", "pictures", "explained", "org/scorer", "files", "not loaded", "statistics", "slow stream"]

LINES_OF_WORDS = """element => {
    const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT), lines = {};
    for (let node; (node = walker.nextNode());) {
        for (const { 0: word, index } of node.textContent.matchAll(/[A-Za-z0-9]+/g)) {
            const range = document.createRange();
            range.setStart(node, index);
            range.setEnd(node, index + word.length);
            lines[word] = new Set([...range.getClientRects()].map(({ top }) => Math.round(top))).size;
        }
    }
    return lines;
}"""
"""On how many lines each word of an element stands."""


def lines_of(element: Locator) -> dict[str, int]:
    return dict(element.evaluate(LINES_OF_WORDS))


def pixels_of(page: Page, element: Locator) -> list[list[list[int]]]:
    """What is drawn of an element: rows of pixels, each red, green and blue."""
    picture = base64.b64encode(element.screenshot()).decode()
    blank = page.context.new_page()
    rows = blank.evaluate(
        """async (text) => {
            const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
            const bitmap = await createImageBitmap(new Blob([bytes]));
            const { width, height } = bitmap, context = new OffscreenCanvas(width, height).getContext("2d");
            context.drawImage(bitmap, 0, 0);
            const { data } = context.getImageData(0, 0, width, height);
            const pixel = (row, column) => [...data.slice((row * width + column) * 4, (row * width + column) * 4 + 3)];
            return Array.from({ length: height }, (_, row) => Array.from({ length: width }, (_, column) => pixel(row, column)));
        }""",
        picture,
    )
    blank.close()
    return list(rows)


@pytest.mark.parametrize("size", SIZES)
def test_the_names_of_models_are_not_broken_within_words(show: Show, size: Any) -> None:
    names = ["credit_default_probability", "customer lifetime value", "fraud-detector-v2", "loader", "not loaded"]

    def index(route: Route) -> None:
        route.fulfill(json=[*route.fetch().json(), *({"name": name, "state": "UNAVAILABLE"} for name in names)])

    page = show("iris", {"**/repository/index": index}, viewport=size)
    show_models(page)
    for name in names:
        link = page.locator("#models a").filter(has_text=name).last
        expect(link).to_have_text(f"{name} unavailable")
        assert set(lines_of(link).values()) == {1}, name


@pytest.mark.parametrize("size", SIZES)
def test_the_chosen_model_is_seen_and_that_there_are_more_above_and_below(show: Show, size: Any) -> None:
    page = show("explained", viewport={**size, "height": 700})
    models = page.locator("#models")
    show_models(page)
    expect(models).to_have_attribute("data-more", "above below")
    chosen, whole = box_of(page.locator("#models [aria-current]")), box_of(models)
    assert whole[1] + 40 <= chosen[1] < chosen[3] <= whole[3] - 40  # what is nearer to an end fades
    models.evaluate("list => { list.scrollTop = 0; }")
    expect(models).to_have_attribute("data-more", "below")
    models.evaluate("list => { list.scrollTop = list.scrollHeight; }")
    expect(models).to_have_attribute("data-more", "above")
    assert whole[3] <= 700  # also with the header above it


def test_the_list_of_models_stays_in_sight(show: Show) -> None:
    page = show("all datatypes", viewport={"width": 1280, "height": 700})
    page.evaluate("scrollTo(0, 900)")
    assert page.evaluate("scrollY") > 300
    assert box_of(page.locator("#filter"))[1] >= 0
    assert box_of(page.locator("#models"))[3] <= 700


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_box_that_goes_on_fades_within_its_border(show: Show, scheme: Any) -> None:
    page = show("iris", viewport=PHONE, color_scheme=scheme)
    page.get_by_label("x FP32").fill("1, 2, 3, 4\n" * 100)
    code = page.locator("#code")
    line = [int(part) for part in code.evaluate("box => getComputedStyle(box).borderTopColor.match(/[0-9]+/g)")]
    expect(code).to_have_attribute("data-more", "below")
    for scrolled in ("below", "above below", "above"):
        expect(code).to_have_attribute("data-more", scrolled)
        rows = pixels_of(page, code)
        columns = [list(column) for column in zip(*rows, strict=True)]
        for lines in (rows, columns):
            ends = [end for place in (15, len(lines) // 2, -15) for end in (lines[place][:2], lines[place][-2:])]
            assert all(line in end for end in ends), scrolled
        code.evaluate("(box, top) => { box.scrollTop = top; }", 60 if scrolled == "below" else 10_000)
    first = rows[1:6]
    code.evaluate("box => { box.scrollTop = 0; }")
    expect(code).to_have_attribute("data-more", "below")
    assert {tuple(pixel) for row in first for pixel in row} != {tuple(pixel) for row in pixels_of(page, code)[1:6] for pixel in row}


@pytest.mark.parametrize("size", SIZES)
def test_code_and_its_tabs_go_on_below_and_never_beside(show: Show, size: Any) -> None:
    for name in ("iris", "churn", "slow stream", "double"):
        page = show(name, viewport=size)
        send(page)
        page.click("#as-text")
        tabs = page.locator("#languages [role=tab]:visible").all()
        assert len(tabs) >= 4
        for tab in tabs:
            tab.click()
            expect(page.locator("#code")).not_to_be_empty()
            assert page.locator("pre:visible").evaluate_all("boxes => boxes.every((box) => box.scrollWidth <= box.clientWidth)")
            words = lines_of(page.locator("#code"))
            assert {words.get(word, 1) for word in ("127", "v2", "models", name, "infer", "stream")} == {1}
        for tab in page.locator("[role=tab]:visible").all():
            assert box_of(tab)[2] <= box_of(tab.locator(".."))[2], name
        tabs[-2].focus()
        page.keyboard.press("ArrowRight")
        expect(page.locator("#languages [role=tab]:visible").last).to_be_focused()


def test_inputs_and_outputs_stand_below_each_other(show: Show) -> None:
    for name in ("iris", "files", "all datatypes", "statistics"):
        page = show(name)
        for column in range(3):
            cells = page.locator(f":is(#inputs, #outputs) tr > :nth-child({column + 1})").all()
            assert len(cells) >= 4
            assert len({round(box_of(cell)[0]) for cell in cells}) == 1, name


@pytest.mark.parametrize("size", SIZES)
def test_nothing_is_broken_cut_or_wrapped_where_it_must_not_be(show: Show, size: Any) -> None:
    for name in MODELS:
        page = show(name, viewport=size)
        if name != "not loaded":
            send(page)
            expect(page.locator("#stop")).to_be_hidden()  # a stream has ended
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"], name
        assert page.locator(".badge:visible, button:visible, .pick:visible").evaluate_all(WRAPPED) == [], name
        words = lines_of(page.locator("#address"))
        assert set(words.values()) == {1}, (name, words)
        [edges] = page.evaluate(EDGES)
        assert edges == [], name


WRAPPED = f"""elements => elements.filter((element) => {{
    const lines = Object.values(({LINES_OF_WORDS})(element)), isCut = element.scrollWidth > element.clientWidth + 1;
    return lines.some((count) => count > 1) || element.getClientRects().length > 1 || isCut || element.offsetHeight > 44;
}}).map((element) => element.textContent)"""
"""What has more than one line, or is cut, among elements of one line."""

EDGES = """() => [[...document.querySelectorAll("section")].flatMap((section) => {
    const whole = section.getBoundingClientRect(), style = getComputedStyle(section);
    const [left, right] = [whole.left + parseFloat(style.paddingLeft), whole.right - parseFloat(style.paddingRight)];
    const parts = [...section.querySelectorAll("h3, h4, pre, textarea, input:not([type=file]), select, button, .scroll, .tabs, figure")];
    const seen = parts.filter((part) => part.checkVisibility() && !part.parentElement.closest(".scroll, .tabs"));
    return seen.map((part) => [part, part.getBoundingClientRect()])
        .filter(([part, box]) => !part.matches("#fields .scroll") && (box.left < left - 1.5 || box.right > right + 1.5))
        .map(([part, box]) => `${part.tagName}#${part.id} ${box.left - left} ${right - box.right}`);
})]"""
"""What stands out of the edges of its card."""


@pytest.mark.parametrize("size", [SIZES[0], PHONE])
def test_the_same_controls_have_the_same_size(show: Show, size: Any) -> None:
    page = show("churn", viewport=size)
    cells = page.locator("#fields td :is(input, select)")
    expect(cells).to_have_count(6)
    boxes = [box_of(cell) for cell in cells.all()]
    assert len({round(bottom - top) for _, top, _, bottom in boxes}) == 1
    assert len({(round(left), round(right)) for left, _, right, _ in boxes}) == 1
    tabs = box_of(page.locator("#forms"))
    words = "(each) => { const range = document.createRange(); range.selectNodeContents(each); return range.getBoundingClientRect().left; }"
    begin = page.locator("#fields tbody th").first.evaluate(words)
    assert (round(boxes[0][2]), round(begin)) == (round(tabs[2]), round(tabs[0]))
    turn_to(page, "iris")
    field = box_of(page.get_by_label("x FP32"))
    assert (round(field[0]), round(field[2])) == (round(tabs[0]), round(tabs[2]))
    write_json(page, page.input_value("#body"))
    body = box_of(page.locator("#body"))
    assert (round(body[0]), round(body[2])) == (round(tabs[0]), round(tabs[2]))


def test_why_a_model_is_not_ready_stands_below_its_name(show: Show) -> None:
    page = show("not loaded", viewport=PHONE)
    expect(page.locator("#state")).to_have_text("unavailable")
    expect(page.locator("#reason")).to_have_text("load failed, see the server's log")
    expect(page.locator("#load")).to_be_visible()
    state, reason, load = (box_of(page.locator(place)) for place in ("#state", "#reason", "#load"))
    assert load[3] <= state[1] < state[3] <= reason[1]
    show_models(page)
    page.get_by_role("link", name="iris", exact=True).click()
    expect(page.locator("#reason")).to_be_hidden()


RINGS = """() => {
    const element = document.activeElement, ring = element.closest(".pick") ?? element, style = getComputedStyle(ring);
    if (element === document.body) return null;
    const out = parseFloat(style.outlineWidth) + parseFloat(style.outlineOffset), box = ring.getBoundingClientRect();
    const cut = [];
    for (let each = ring.parentElement; each; each = each.parentElement) {
        if (getComputedStyle(each).overflow === "visible" || each === document.documentElement || each === document.body) continue;
        const around = each.getBoundingClientRect();
        const isCut = box.left - out < around.left - .5 || (box.right + out > around.right + .5 && box.right <= around.right);
        if (isCut) cut.push(`${each.id}.${each.className}`);
    }
    return { name: `${element.tagName}#${element.id} ${element.getAttribute("aria-label") ?? element.textContent.slice(0, 20)}`,
        isSeen: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2 || element.id === "detail",
        mask: style.maskImage, cut };
}"""
"""The ring around what has the focus: whether it is seen, and what cuts it."""


@pytest.mark.parametrize("size", [SIZES[0], PHONE])
def test_what_has_the_focus_has_a_whole_ring(show: Show, size: Any) -> None:
    for name in ("iris", "churn"):
        page = show(name, viewport=size)
        send(page)
        page.evaluate("scrollTo(0, 0)")
        page.locator("#detail").focus()
        rings = []
        for _ in range(40):
            page.keyboard.press("Tab")
            ring = page.evaluate(RINGS)
            if ring is None:
                break
            rings.append(ring)
        assert len(rings) > 12
        for ring in rings:
            assert ring["isSeen"], ring
            assert ring["mask"] == "none", ring
            assert ring["cut"] == [], ring


CONTRASTS = """() => {
    const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
    const rgb = (color, under) => {
        canvas.clearRect(0, 0, 1, 1);
        for (const each of [under, color].filter(Boolean)) { canvas.fillStyle = each; canvas.fillRect(0, 0, 1, 1); }
        return [...canvas.getImageData(0, 0, 1, 1).data];
    };
    const linear = (part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    const light = (parts) => [0.2126, 0.7152, 0.0722].reduce((sum, weight, place) => sum + weight * linear(parts[place] / 255), 0);
    const css = (parts) => `rgb(${parts.slice(0, 3).join(" ")})`;
    const behind = (element) => {
        if (!element) return css(rgb("Canvas"));
        const color = getComputedStyle(element).backgroundColor;
        return rgb(color)[3] === 255 ? css(rgb(color)) : css(rgb(color, behind(element.parentElement)));
    };
    const ratio = (one, other) => {
        const [dark, bright] = [light(rgb(one)), light(rgb(other))].sort((a, b) => a - b);
        return (bright + 0.05) / (dark + 0.05);
    };
    const low = [];
    const tell = ({ tagName, id, className }, what, found, least) => {
        if (found < least) low.push(`${what} ${found.toFixed(2)} ${tagName}#${id}.${className}`);
    };
    for (const element of document.querySelectorAll("body *")) {
        if (!element.checkVisibility() || element.closest(":disabled, svg, noscript, script")) continue;
        const style = getComputedStyle(element), isText = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
        if (isText) tell(element, "text", ratio(style.color, behind(element)), 4.5);
        if (element.matches("input:not([type=file], [type=checkbox]), select, textarea")) {
            tell(element, "text", ratio(style.color, behind(element)), 4.5);
            tell(element, "edge", ratio(style.borderTopColor, behind(element.parentElement)), 3);
            tell(element, "edge", ratio(style.borderTopColor, behind(element)), 3);
        }
    }
    return low;
}"""
"""What WCAG 2.2 AA finds too faint: text below 4.5 to 1, edges of controls below 3 to 1."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_controls_can_be_told_from_what_is_behind_them(show: Show, scheme: Any) -> None:
    page = show.open("/v2/docs", color_scheme=scheme)
    for name in MODELS:
        page.evaluate("name => { location.hash = new URLSearchParams({ model: name }); }", name)
        expect(page.locator("h2")).to_have_text(name)
        if name != "not loaded":
            send(page)
        assert page.evaluate(CONTRASTS) == [], name


@pytest.mark.parametrize("size", [SIZES[0], PHONE])
def test_the_cells_of_a_frame_are_whole(show: Show, size: Any) -> None:
    page = show("churn", viewport=size)
    scroll = page.locator("#fields .scroll")
    page.locator("#fields input[type=date]").first.evaluate("cell => { cell.type = 'datetime-local'; }")  # the widest of all
    assert scroll.evaluate("box => box.scrollWidth <= box.clientWidth")
    for _ in range(2):
        page.get_by_role("button", name="Add a row").click()
    page.locator("#fields input[type=date]").first.evaluate("cell => { cell.type = 'datetime-local'; }")
    for row in page.locator("#fields tbody tr").all():
        boxes = [box_of(cell) for cell in row.locator("input, select").all()]
        before, after = (1, 3) if size is PHONE else (0, 2)  # below each other on a phone, else beside
        assert all(one[after] <= other[before] for one, other in pairwise(boxes))
        titles = [box_of(title) for title in page.locator("#fields thead th:visible").all()]
        above = [] if size is PHONE else [box[0] for box in boxes]  # "row 2" stands above row 2, but beside it on a phone
        assert [title[0] for title in titles] == pytest.approx(above, abs=1)
        assert scroll.evaluate("box => box.scrollWidth - box.scrollLeft - box.clientWidth") == pytest.approx(0, abs=1)
        assert boxes[-1][2] == pytest.approx(box_of(scroll)[2], abs=16)  # and the last row ends where all ends


@pytest.mark.parametrize(("size", "seen"), [(SIZES[0], 2), ({"width": 768, "height": 1024}, 1)])
def test_the_rows_of_a_frame_are_seen_whole_or_not_at_all(show: Show, size: Any, seen: int) -> None:
    page = show("churn", viewport=size)
    scroll, names = page.locator("#fields .scroll"), page.locator("#fields tbody th").first

    def assert_whole(shown: list[int]) -> None:
        """These rows are between the left and the right end, and the others are out of sight; labels begin where all else does."""
        left, right = box_of(scroll)[0], box_of(scroll)[2]
        for line in page.locator("#fields tbody tr").all():
            for row, cell in enumerate(line.locator("input, select").all(), 1):
                begin, _, end, _ = box_of(cell)
                assert (left - 1 < begin and end < right) if row in shown else (end < left - 2 or begin > right), (row, begin, end)
        begin = names.evaluate("title => title.getBoundingClientRect().left + parseFloat(getComputedStyle(title).paddingLeft)")
        assert begin == pytest.approx(box_of(page.locator("#fields .buttons"))[0], abs=0.5)

    for count in (2, 3, 4):
        page.get_by_role("button", name="Add a row").click()
        expect(page.get_by_label(f"age, row {count}")).to_be_focused()
        assert_whole(list(range(count - seen + 1, count + 1)))
    for place, first in ((0, 1), (box_of(page.get_by_label("age, row 1"))[2] - box_of(page.get_by_label("age, row 1"))[0] - 30, 2)):
        scroll.evaluate("(box, place) => { box.scrollLeft = place; }", place)
        assert_whole(list(range(first, first + seen)))


@pytest.mark.parametrize("size", [SIZES[0], PHONE])
def test_nothing_lies_over_the_ring_of_a_cell(show: Show, size: Any) -> None:
    page = show("churn", viewport=size)
    page.get_by_role("button", name="Add a row").click()
    scroll = box_of(page.locator("#fields .scroll"))
    for label in ("age, row 2", "income, row 2", "age, row 1", "active, row 1"):
        page.get_by_label(label).focus()
        page.wait_for_timeout(100)
        left, top, right, bottom = box_of(page.get_by_label(label))
        assert scroll[0] <= left - 3, label
        assert right + 3 <= scroll[2] + 0.5, label
        assert scroll[1] <= top - 3, label
        for title in page.locator("#fields :is(thead, tbody) th:visible").all():
            begin, above, end, below = box_of(title)
            assert begin > right + 2 or end < left - 2 or below < top - 2.5 or above > bottom + 2.5, label


def test_nothing_is_seen_left_of_the_names_of_a_frame(show: Show) -> None:
    page = show("churn", viewport=SIZES[0])
    for _ in range(5):
        page.get_by_role("button", name="Add a row").click()
    scroll = page.locator("#fields .scroll")
    scroll.evaluate("box => { box.scrollLeft = 200; }")
    page.locator("h2").click()  # the ring of the last cell goes
    assert (240, 243, 247) not in {tuple(row[1]) for row in pixels_of(page, scroll)}  # the inside of a cell


def test_rows_beside_each_other_leave_room_for_names_and_times(show: Show) -> None:
    page = show("churn", viewport=SIZES[0])
    page.get_by_role("button", name="Add a row").click()
    for title in page.locator("#fields tbody th").all():
        assert box_of(title)[3] - box_of(title)[1] < 30  # one line
    date = page.get_by_label("since, row 2")
    date.evaluate("cell => { cell.type = 'datetime-local'; cell.step = 1; cell.value = '2024-11-20T22:30:15'; }")
    whole = box_of(date)[2] - box_of(date)[0]
    date.evaluate("cell => { Object.assign(cell.style, { width: 'max-content', maxWidth: 'none' }); }")
    assert box_of(date)[2] - box_of(date)[0] <= whole


def test_code_breaks_an_address_at_its_slashes(show: Show) -> None:
    page = show("words", viewport=PHONE)
    assert "\u200b" not in page.locator("#code").inner_text()
    for width in range(320, 480, 10):
        page.set_viewport_size({"width": width, "height": 740})
        tops = page.locator("#code").evaluate("""code => {
            const walker = document.createTreeWalker(code, NodeFilter.SHOW_TEXT), tops = [];
            for (let node; (node = walker.nextNode());) {
                const place = node.data.indexOf("infer_stream");
                for (let letter = place; place >= 0 && letter < place + 12; letter += 1) {
                    const range = document.createRange();
                    range.setStart(node, letter);
                    range.setEnd(node, letter + 1);
                    tops.push(Math.round(range.getBoundingClientRect().top));
                }
            }
            return tops;
        }""")  # fmt: skip
        assert len(tops) == 12
        assert len(set(tops)) == 1, width


def test_a_score_stands_on_one_line(show: Show) -> None:
    page = show("species", viewport=PHONE)
    page.click("#send")
    score = page.locator("#look .score").first
    height = box_of(score)[3] - box_of(score)[1]
    score.evaluate("score => { score.textContent = '100.0 %'; }")
    assert box_of(score)[3] - box_of(score)[1] == height


@pytest.mark.parametrize("size", [SIZES[0], PHONE])
def test_a_text_stays_in_place_when_its_stream_ends(show: Show, size: Any) -> None:
    page = show("words", viewport=size)

    def places() -> list[float]:
        tops = [box_of(page.locator(place))[1] for place in ("#answer", "#size", "#look", "#look .text")]
        return [tops[1] - tops[0], tops[3] - tops[2]]

    page.click("#send")
    expect(page.locator("#look .text")).to_contain_text(" 1")
    before = places()
    page.click("#stop")
    expect(page.locator("#stop")).to_be_hidden()
    assert places() == pytest.approx(before, abs=1)
