"""What a browser shows of a report's page, and does when a person clicks."""

from __future__ import annotations

import dataclasses
import json

import browser
import pytest
from browser import Browser
from made_up import job
from variants import also

from tfhvd.profiling import page, report
from tfhvd.profiling.breakdown import PARTS

pytestmark = pytest.mark.skipif(
    browser.find() is None,
    reason="no browser is installed: apt-get install chromium-headless-shell, or chromium",
)
HARMFUL = "layer_" * 40 + "</script><script>window.harm = 1</script><img src=x onerror=harm=1>"
FIRST_LANE = 70  # pixels below the picture's top, where the first rank's collectives are


@pytest.fixture(scope="module")
def one():
    """The browser of all tests, of which nothing is left in the end."""
    with Browser() as found:
        yield found
    assert not found.folder.exists()
    assert browser.processes_of(found.folder) == []


@pytest.fixture(params=["light", also("dark")])
def shown(request, one, tmp_path):
    """Opens a report's page, and in the end sees that nobody was asked for anything else."""
    file = tmp_path / "page.html"
    one.prefer(request.param)
    one.errors.clear()
    one.requests.clear()

    def show(made: report.Report) -> Browser:
        page.write(made, file)
        one.open(file)
        return one

    yield show
    assert one.errors == []
    assert one.requests == [file.as_uri()]


def view(found: Browser) -> tuple[float, float]:
    """From when to when the picture of collectives is, in microseconds."""
    data = json.loads(str(found.js("JSON.stringify(document.querySelector('#time').dataset)")))
    assert int(data["drawn"]) > 0
    return float(data["from"]), float(data["to"])


def lane(found: Browser) -> float:
    """Where the first rank's collectives are, as a share of the picture's height."""
    return FIRST_LANE / float(str(found.js("document.querySelector('#time').clientHeight")))


def count(found: Browser, selector: str) -> int:
    return int(str(found.js(f"document.querySelectorAll({json.dumps(selector)}).length")))


@pytest.mark.parametrize("ranks", [also(1), 2, also(8)])
def test_what_it_shows(shown, ranks):
    late = {ranks - 1: 0.05} if ranks > 1 else {}
    made = report.make(job(late, hosts=("a",) * ranks, steps=10))
    found = shown(made)
    assert found.text("h1") == page.page_data.headline(made)
    assert f"10 steps of {ranks} rank" in found.text("#what")
    assert found.text("#legend").splitlines()[0] == "input: the step waits for its data"
    assert count(found, "#legend li") == len(PARTS)
    bars = sum(made.seconds(rank, part) > 0 for rank in made.steps for part in PARTS)
    assert count(found, "#bars [data-part]") == bars
    assert "computing 60.000 ms" in found.text("#bars")
    drawn = sum(step.parts[part] > 0 for step in made.steps[ranks - 1] for part in PARTS)
    assert count(found, "#columns [data-part]") == drawn
    visible = "getComputedStyle(document.querySelector('#waits-section')).display !== 'none'"
    assert found.js(visible) == (ranks > 1)
    if ranks > 1:
        assert found.text(f"#waits [data-wait='0-{ranks - 1}']") == "50.000"
        row = found.text("#slowest tbody tr").split("\t")
        assert row == [f"rank {ranks - 1} on a", "50.000", "33%", "input (50.000 ms)"]
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert found.js(wide) == 0


def test_clicks_and_keys(shown):
    late = [0.01] * 10
    late[6] = 0.08
    found = shown(report.make(job({1: late}, steps=10)))
    begin, end = view(found)
    assert end - begin == pytest.approx(110_000)  # a step of usual length
    found.click("#columns rect.column[data-first='3']")
    assert "Shown: step 4; 330.000 to 440.000 ms" in found.text("#view")
    assert count(found, "#columns rect.shown") == 1
    found.click("#next")
    assert "step 5;" in found.text("#view")
    found.click("#slowest-step")
    begin, end = view(found)
    assert "step 7;" in found.text("#view") and end - begin == pytest.approx(180_000)
    found.click("#in")
    assert view(found) == pytest.approx((begin + 45_000, end - 45_000))
    found.click("#out")
    found.click("#previous")
    assert "step 6;" in found.text("#view")
    begin, end = view(found)
    found.click("#time", 0.8, lane(found))
    assert found.text("#picked").startswith(
        "rank 0 on a: g (3 tensors, 4,000 bytes): waited 10.000"
    )
    for key, moved in (("ArrowRight", 22_000), ("ArrowLeft", 0)):
        for kind in ("keyDown", "keyUp"):
            found.ask("Input.dispatchKeyEvent", type=kind, key=key)
        assert view(found) == pytest.approx((begin + moved, end + moved))
    found.js("document.querySelector('#rank').value = 0")
    found.js("document.querySelector('#rank').dispatchEvent(new Event('change'))")
    assert count(found, "#columns [data-part='waiting']") == 10


def test_dragging_moves_and_the_wheel_zooms(shown):
    found = shown(report.make(job({1: 0.01}, steps=10)))
    before = view(found)
    found.click("#time", 0.5, lane(found))
    place = json.loads(
        str(
            found.js(
                "(() => { const r = document.querySelector('#time').getBoundingClientRect();"
                "return JSON.stringify([r.x, r.y + 20, r.width]); })()"
            )
        )
    )
    x, y, width = place
    for kind, at in (("mousePressed", 0.5), ("mouseMoved", 0.25), ("mouseReleased", 0.25)):
        button = {"button": "left", "buttons": 1, "clickCount": 1}
        found.ask("Input.dispatchMouseEvent", type=kind, x=x + at * width, y=y, **button)
    moved = view(found)
    by = 0.25 * (before[1] - before[0])
    assert moved == pytest.approx((before[0] + by, before[1] + by), rel=0.01)
    wheel = {"type": "mouseWheel", "x": x + width / 2, "y": y, "deltaX": 0, "deltaY": -100}
    found.ask("Input.dispatchMouseEvent", **wheel)
    assert view(found)[1] - view(found)[0] == pytest.approx(0.8 * (moved[1] - moved[0]))


def test_names_do_no_harm_and_long_ones_fit(shown):
    traces = {
        rank: dataclasses.replace(
            trace,
            host=HARMFUL,
            meetings=tuple(dataclasses.replace(m, name=HARMFUL) for m in trace.meetings),
        )
        for rank, trace in job({1: 0.02}).items()
    }
    found = shown(report.make(traces))
    found.click("#time", 0.8, lane(found))
    assert f"rank 0 on {HARMFUL}: {HARMFUL} (3 tensors" in found.text("#picked")
    assert found.js("window.harm") is None and count(found, "img") == 0
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert found.js(wide) == 0


def test_thousands_of_steps(shown):
    late = [0.01] * 3000
    late[2222] = 0.5
    found = shown(report.make(job({1: late}, steps=3000)))
    assert "Each column is the average of 15 steps" in found.text("#columns-note")
    assert "Of 3,000 steps this picture has 200: the longest of each column." in found.text(
        "#kept-note"
    )
    assert count(found, "#columns rect.column") == 200
    found.click("#columns rect.column[data-first='2220']")
    assert "step 2223;" in found.text("#view")
    for _ in range(6):
        found.click("#out")
    begin, end = view(found)
    assert end - begin == pytest.approx(20 * 600_000)


def test_texts_can_be_read_on_their_colours(shown):
    """The contrast is 4.5 at least, as WCAG asks for."""
    found = shown(report.make(job()))
    pairs = [("text", "back"), ("soft", "back"), ("text", "panel"), ("soft", "panel")]
    pairs += [(f"on-{part}", part) for part in PARTS]
    for scheme in ("light", "dark"):
        found.prefer(scheme)
        for ink, paper in pairs:
            both = luminance(found, ink), luminance(found, paper)
            assert (max(both) + 0.05) / (min(both) + 0.05) >= 4.5, (scheme, ink, paper)


def luminance(found: Browser, name: str) -> float:
    text = f"getComputedStyle(document.documentElement).getPropertyValue('--{name}')"
    code = str(found.js(text)).strip().lstrip("#")
    code = code if len(code) == 6 else "".join(2 * digit for digit in code)
    linear = []
    for at in (0, 2, 4):
        value = int(code[at : at + 2], 16) / 255
        linear.append(value / 12.92 if value <= 0.03928 else ((value + 0.055) / 1.055) ** 2.4)
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
