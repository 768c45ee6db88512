"""The page in a narrow window, on a phone, in both colours, and by the keyboard alone."""

from typing import Any

import httpx
import pytest

from explorer import PROBLEM, cookies_of
from explorer_page import DRAWN, SLOW, Explorer
from factories import some_slow


def test_keyboard_alone(own_explorer: Explorer, address: str) -> None:
    explorer = own_explorer
    explorer.open(address)
    page = explorer.page
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.textContent") == "Skip to the controls"
    page.focus("#view-loss")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#view-kernel[aria-selected=true]:focus", timeout=SLOW)
    page.keyboard.press("ArrowLeft")
    explorer.slider("optimizer.lr").focus()
    assert page.evaluate("() => getComputedStyle(document.activeElement).outlineStyle") == "solid"
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    explorer.wait_for(f"{DRAWN}?.optimizer.lr > 0.05")
    page.focus("#export")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.dataset.export") == "png"
    page.keyboard.press("Escape")
    page.locator("[data-export=png]").wait_for(state="hidden", timeout=SLOW)
    unlabelled = """() => [...document.querySelectorAll('input, select, button')]
        .filter((each) => each.checkVisibility())
        .filter((each) => !(each.labels?.length || each.getAttribute('aria-label') || each.textContent.trim()))
        .map((each) => each.id)"""
    assert page.evaluate(unlabelled) == []


@pytest.mark.parametrize("scheme", some_slow(["light", "dark"], "light"))  # to which it changes
def test_narrow_window_and_colours(browser: Any, client: httpx.Client, address: str, scheme: str) -> None:
    context = browser.new_context(viewport={"width": 375, "height": 700}, color_scheme=scheme)
    context.add_cookies(cookies_of(client))
    explorer = Explorer(context.new_page())
    explorer.open(address)
    page = explorer.page
    assert page.evaluate("() => document.documentElement.scrollWidth") == 375
    plot, controls = page.locator("#plot").bounding_box(), page.locator("#controls").bounding_box()
    assert plot["width"] > 300
    assert controls["y"] > plot["y"]
    grounds = {"light": "#ffffff", "dark": "#181d23"}
    other = "dark" if scheme == "light" else "light"
    ground = page.evaluate("() => document.querySelector('#plot').layout.paper_bgcolor")
    assert ground == grounds[scheme]
    for expected in (other, scheme):  # the first click already changes the colours, the next one back
        page.click("#theme")
        explorer.wait_for(f"document.querySelector('#plot').layout.paper_bgcolor === '{grounds[expected]}'")
    context.close()


def is_in_sight(explorer: Explorer) -> bool:
    box = explorer.page.locator("#plot").bounding_box()
    return bool(box["y"] >= 0 and box["y"] + box["height"] <= 0.5 * 812 and box["height"] >= 190)


def test_the_picture_stays_in_sight_of_every_control(phone: Explorer) -> None:
    page = phone.page
    for more in page.locator("details.more").all():
        more.evaluate("(each) => (each.open = true)")
    last = phone.control("optimizer.weight_decay")
    last.scroll_into_view_if_needed()
    page.locator(".experiment").scroll_into_view_if_needed()
    assert is_in_sight(phone)
    phone.slider("optimizer.weight_decay").scroll_into_view_if_needed()
    before = phone.traces[-1]["y"]
    phone.slider("optimizer.weight_decay").fill("200")
    phone.wait_for(f"{DRAWN}?.optimizer.weight_decay === 0.5")
    assert phone.traces[-1]["y"] != before
    assert is_in_sight(phone)
    assert page.evaluate("() => document.documentElement.scrollWidth") == 375
    assert page.locator("#plot .modebar-btn").count() == 0

    # A finger on the picture scrolls the page as it does elsewhere.
    touch = page.context.new_cdp_session(page)
    top = page.evaluate("() => scrollY")
    touch.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": 200, "y": 120}]})
    for y in (140, 180, 220):
        touch.send("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": [{"x": 200, "y": y}]})
    touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    phone.wait_for(f"scrollY < {top}")


def test_the_keyboard_never_lands_under_the_picture(phone: Explorer) -> None:
    page = phone.page
    where = """() => {
        const [at, picture] = [document.activeElement, document.querySelector('.picture')];
        const [own, above] = [at.getBoundingClientRect(), picture.getBoundingClientRect()];
        const isHidden = own.top < above.bottom && own.bottom > above.top && !picture.contains(at);
        return [at.id || at.textContent, isHidden || own.bottom > innerHeight];
    }"""
    for key, end in (("Tab", "train"), ("Shift+Tab", "preset")):
        reached: list[str] = []
        while end not in reached:
            page.keyboard.press(key)
            phone.wait_for(f"!({where})()[1]")  # which may take until a picture that is being drawn has its size
            reached.append(page.evaluate(where)[0])
            assert len(reached) < 100
    some = ("experiment.dim", "network.width", "steps", "pin", "view-loss")
    assert tuple(name for name in reached if name in some) == some  # from the bottom to the top, as they are seen


def test_the_legend_of_a_narrow_picture_is_not_cut_off(browser: Any, client: httpx.Client, address: str) -> None:
    context = browser.new_context(viewport={"width": 420, "height": 900})
    context.add_cookies(cookies_of(client))
    explorer = Explorer(context.new_page())
    pins = [{"problem": PROBLEM | {"network": PROBLEM["network"] | {"width": width}}} for width in (0.25, 4.0)]
    explorer.open(address, pins=pins)
    explorer.control("experiment.dim").fill("20")
    explorer.page.click("#train")
    explorer.wait_for("document.querySelector('#plot').layout.legend.title.text.includes('networks')")
    ends = "[...document.querySelectorAll('#plot .legend text')].map((each) => each.getBoundingClientRect().right)"
    explorer.wait_for(f"{ends}.length >= 5")
    right = explorer.page.evaluate(f"() => Math.max(...{ends})")
    assert right <= explorer.page.evaluate("() => document.querySelector('#plot').getBoundingClientRect().right")
    place = "(which) => document.querySelector(`#plot ${which}`).getBoundingClientRect()"
    title, first = explorer.page.evaluate(f"() => ['.legendtitletext', '.legendtext'].map({place})")
    assert title["bottom"] < first["top"] + 5  # above the names, and not beside them
    context.close()
