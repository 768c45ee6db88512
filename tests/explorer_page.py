"""The explorer's page in a browser, and what can be read off it."""

import json
import urllib.parse
from typing import Any

from explorer import PROBLEM

SLOW = 90_000  # milliseconds: a loaded machine
DRAWN = "JSON.parse(document.querySelector('#plot').dataset.key || 'null')"  # the problem whose curve is shown
FOLLOW = """(link) => {
    document.querySelector('#plot').dataset.key = '';
    history.replaceState(null, '', link);
    window.dispatchEvent(new HashChangeEvent('hashchange'));
}"""  # also where the address is the same as before
IS_DRAWN = '#plot[data-key]:not([data-key=""])'


class Explorer:
    """A page of the explorer, and what can be read off it."""

    def __init__(self, page: Any) -> None:
        self.page = page

    def open(self, address: str, **state: Any) -> None:
        """Follow a link with this state. A page that is there already reads it without being loaded again."""
        link = f"#%20{urllib.parse.quote(json.dumps({'problem': PROBLEM} | state))}"
        if self.page.url.startswith(f"{address}#"):
            self.page.evaluate(FOLLOW, link)
        else:
            self.page.goto(f"{address}{link}")
        self.page.wait_for_selector(IS_DRAWN, timeout=SLOW)
        self.wait_for("!location.hash.startsWith('#%20')")  # the page has written its own address, without the space

    @property
    def state(self) -> dict[str, Any]:
        read: dict[str, Any] = json.loads(urllib.parse.unquote(self.page.url.split("#", 1)[1]))
        return read

    @property
    def traces(self) -> list[dict[str, Any]]:
        keys = "({x, y, z, name, showlegend, mode}) => ({x, y, z, name, showlegend, mode})"
        read: list[dict[str, Any]] = self.page.evaluate(f"() => document.querySelector('#plot').data.map({keys})")
        return read

    def wait_for(self, condition: str) -> None:
        self.page.wait_for_function(f"() => {condition}", timeout=SLOW)

    def wait_for_text(self, selector: str, text: str) -> None:
        """Wait until an element shows some text: what follows an action may come a little later than its curve."""
        self.wait_for(f"document.querySelector({json.dumps(selector)})?.textContent.includes({json.dumps(text)})")

    def wait_for_chips(self, texts: list[str]) -> None:
        chips = "[...document.querySelectorAll('#pins .chip')].map((each) => each.textContent)"
        self.wait_for(f"JSON.stringify({chips}) === JSON.stringify({json.dumps(texts)})")

    def wait_for_count(self, selector: str, count: int) -> None:
        self.wait_for(f"document.querySelectorAll({json.dumps(selector)}).length === {count}")

    def wait_for_traces(self, count: int) -> None:
        self.wait_for(f"document.querySelector('#plot').data?.length === {count}")

    def wait_for_value(self, part: str, field: str, value: Any) -> None:
        self.wait_for(f"{DRAWN}?.{part}.{field} === {json.dumps(value)}")

    def control(self, name: str) -> Any:
        return self.page.locator(f'[id="{name}"]')

    def slider(self, name: str) -> Any:
        return self.page.locator(".control", has=self.control(name)).locator("input[type=range]")
