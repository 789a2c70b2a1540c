"""The shop as a web site: people shop in the pages that agents see, and their trips are stored as the same trees.

An address names a visitor's trip and a page of it, so that going back in the browser goes back in the shop. Importing
this module needs the extra `serve`.
"""

import re
from typing import Any
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tsr_gym_envs.serving import LOOPBACK, BodyLimit, client_left
from tsr_gym_envs.webshop.trips import Trips, TripTooLong, Visit, Visitors, end_of
from tsr_gym_envs.webshop.web_page import STATIC, page_html, templates

# Most letters of a query, and most bytes of a request's body; the shop's forms send none.
MAX_QUERY, MAX_BODY = 500, 10_000
HEADERS = {
    # No scripts; styles and pictures only from this server; no framing by other sites.
    "content-security-policy": "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    # "no-referrer" would hide the origin of forms, which `_check_form` needs.
    "referrer-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_LOOPBACKS = ("127.0.0.1", "localhost", "[::1]")
_TITLES = {
    400: "The shop does not understand this",
    403: "This did not come from the shop",
    404: "There is no such page",
    405: "This is not a page to look at",
    410: "This task is over",
    413: "This is too long",
    414: "This search is too long",
    429: "You have opened too many pages",
    500: "The shop has made a mistake",
}


class PageLinks:
    """The addresses of a page's links and forms.

    Args:
        here: Address of the page.
        home: Address of the link on the shop's name.
    """

    def __init__(self, here: str, home: str) -> None:
        self._here, self._home = here, home

    def home(self) -> str:
        """Return the address of the link on the shop's name."""
        return self._home

    def search(self) -> str:
        """Return the address of searches."""
        return f"{self._here}/search"

    def click(self, name: str) -> str:
        """Return the address of a click; all clicks are links, which can open in a new tab, except buying, a form."""
        return f"{self._here}/buy" if name == "buy now" else f"{self._here}/click?{urlencode({'name': name})}"

    def static(self, name: str) -> str:
        """Return the address of a file in the folder ``static``."""
        return f"/static/{name}"


def shop_site(trips: Trips, visitors: Visitors | None = None, *, host: str = LOOPBACK) -> Starlette:
    """Return the application.

    Args:
        trips: Begins trips and takes their steps.
        visitors: The visitors; None begins without any.
        host: Address to listen at. On loopback, requests under other host names are refused, which stops DNS rebinding:
            another site whose name resolves to this address cannot read the shop's pages.
    """
    hosts = _LOOPBACKS if host in (*_LOOPBACKS, "::1") else None
    desk = _Desk(trips, Visitors() if visitors is None else visitors)
    return Starlette(
        routes=[
            Route("/", desk.enter),
            Route("/next", desk.next_trip, methods=["POST"]),
            Mount("/static", StaticFiles(directory=STATIC)),
            Route("/{trip}/{page}", desk.show),
            Route("/{trip}/{page}/search", desk.search),
            Route("/{trip}/{page}/click", desk.click),
            Route("/{trip}/{page}/buy", desk.buy, methods=["POST"]),
        ],
        middleware=[Middleware(_Guard, hosts=hosts), Middleware(BodyLimit, max_bytes=MAX_BODY)],
        exception_handlers={HTTPException: _refused, ClientDisconnect: client_left, Exception: _failed},
    )


class _Desk:
    """Answers requests, one after the other: a step takes milliseconds, and all trips share one environment."""

    def __init__(self, trips: Trips, visitors: Visitors) -> None:
        self._trips, self._visitors = trips, visitors

    async def enter(self, request: Request) -> Response:
        """Redirect a visitor to the latest page, and a new visitor to the first."""
        visit = self._visitors.find(_token(request))
        if visit is not None:
            end = end_of(visit.trip)
            return _to(visit, len(visit.trip.nodes) - 1 if end is None else end)
        visit = Visit(1, self._trips.begin())
        answer = _to(visit, 0)
        # The cookie is strict, so that links and forms of other sites never act for a visitor.
        answer.set_cookie(_cookie(request), self._visitors.enter(visit), httponly=True, samesite="strict")
        return answer

    async def next_trip(self, request: Request) -> Response:
        """Begin a visitor's next trip."""
        await _check_form(request)
        token = _token(request)
        visit = self._visitors.find(token)
        if token is None or visit is None:
            return RedirectResponse("/", 303)
        following = Visit(visit.number + 1, self._trips.begin())
        self._visitors.keep(token, following)
        return _to(following, 0)

    async def show(self, request: Request) -> Response:
        """Show a page of the visitor's trip."""
        visit, page = self._find(request)
        return self._page(visit, page)

    async def search(self, request: Request) -> Response:
        """Search from a page."""
        _check_fetch(request)
        visit, page = self._find(request)
        keywords = " ".join(request.query_params.get("keywords", "").split())
        if len(keywords) > MAX_QUERY:
            raise HTTPException(414, f"A search has at most {MAX_QUERY} letters, and this one has {len(keywords)}.")
        if not keywords:
            return _to(visit, page)
        return self._step(visit, page, f"search[{keywords}]", HTTPException(400, "Search for other words."))

    async def click(self, request: Request) -> Response:
        """Click on a page, except to buy."""
        _check_fetch(request)
        visit, page = self._find(request)
        name = request.query_params.get("name", "")
        action = f"click[{name}]"
        # Parsed as the shop parses it, because blanks and line ends in the name could disguise a purchase.
        if (self._trips.shop.parse(action).argument or "").lower() == "buy now":
            raise HTTPException(405, "Press the button to buy.", {"Allow": "POST"})
        return self._step(visit, page, action, HTTPException(404, f"The page has no “{name}” to click."))

    async def buy(self, request: Request) -> Response:
        """Buy the product of a page."""
        await _check_form(request)
        visit, page = self._find(request)
        return self._step(visit, page, "click[buy now]", HTTPException(404, "There is nothing to buy on this page."))

    def _find(self, request: Request) -> tuple[Visit, int]:
        """Return the visit and the page that an address names."""
        visit = self._visitors.find(_token(request))
        trip, page = (_number(request.path_params[name]) for name in ("trip", "page"))
        if visit is None:
            raise HTTPException(404, "Your visit is over, or your browser keeps no cookies. You can begin a new one.")
        # Pages of an earlier trip are in the browser's history, but their tree has been replaced.
        if trip < visit.number:
            raise HTTPException(410, "You have begun another task since.")
        if trip > visit.number or page >= len(visit.trip.nodes):
            raise HTTPException(404, "You have not been on such a page.")
        return visit, page

    def _step(self, visit: Visit, page: int, action: str, refusal: HTTPException) -> Response:
        try:
            after = self._trips.step(visit.trip, page, action)
        except TripTooLong as error:
            raise HTTPException(429, "Go back and buy, or begin the next task.") from error
        if after is None:
            raise refusal
        pages = (self._trips.state(visit.trip, page).page, self._trips.state(visit.trip, after).page)
        # After the choice of an option, the page opens at the options instead of the top.
        return _to(visit, after, "#options" if pages == ("item_page", "item_page") else "")

    def _page(self, visit: Visit, page: int) -> Response:
        trip = visit.trip
        state, end = self._trips.state(trip, page), end_of(trip)
        here = _address(visit, page)
        links = PageLinks(here, here)
        if state.page not in ("index", "done"):
            links = PageLinks(here, links.click("back to search"))
        file = self._trips.file_of(trip) if end == page else None
        more: dict[str, Any] = {
            "turns_left": trip.nodes[page].info["turns_left"],
            "end": None if end is None or end == page else _address(visit, end),
            "is_over": end == page,
            "next_trip": "/next",
            "file": "" if file is None else file.name,
        }
        html = page_html(self._trips.shop, state, links, **more)
        return HTMLResponse(html, headers={"cache-control": "no-store"})


class _Guard:
    """Middleware that refuses foreign host names, and sets the security headers."""

    def __init__(self, app: ASGIApp, hosts: tuple[str, ...] | None) -> None:
        self._app, self._hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, unless it names another host."""

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        app = self._app
        if scope["type"] == "http" and self._hosts is not None:
            name = re.sub(r":\d*$", "", dict(scope["headers"]).get(b"host", b"").decode("latin-1"))
            if name.lower() not in self._hosts:
                app = _message(403, "The address is not the shop's own.")
        await app(scope, receive, guarded)


def _address(visit: Visit, page: int) -> str:
    return f"/{visit.number}/{page}"


def _to(visit: Visit, page: int, part: str = "") -> RedirectResponse:
    return RedirectResponse(_address(visit, page) + part, 303)


def _cookie(request: Request) -> str:
    # Browsers send a cookie to all ports of its host, so each server needs its own name.
    return f"webshop_{request.scope['server'][1]}"


def _token(request: Request) -> str | None:
    return request.cookies.get(_cookie(request))


def _number(text: str) -> int:
    if re.fullmatch("[0-9]{1,9}", text) is None:
        raise HTTPException(404, "The shop has no such address.")
    return int(text)


def _check_fetch(request: Request) -> None:
    """Refuse requests that a page of another site sent; browsers declare it in a header."""
    if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        raise HTTPException(403, "Another site sent this request.")


async def _check_form(request: Request) -> None:
    """Refuse forms of other sites, with any cookie, and forms that are too long."""
    _check_fetch(request)
    host = request.headers.get("host")
    if request.headers.get("origin") not in (f"http://{host}", f"https://{host}"):
        raise HTTPException(403, "Another site sent this form.")
    await request.body()


def _message(status: int, text: str, headers: dict[str, str] | None = None) -> Response:
    title = _TITLES.get(status, "This did not work")
    html = templates().get_template("message.html")
    content = html.render(links=PageLinks("", "/"), kind="message", title=title, text=text)
    return HTMLResponse(content, status, headers={**HEADERS, "cache-control": "no-store", **(headers or {})})


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    # The framework's default text is the name of the status, which the title already explains.
    text = "" if error.detail in ("Not Found", "Method Not Allowed") else error.detail
    return _message(error.status_code, text, dict(error.headers or {}))


async def _failed(_: Request, error: Exception) -> Response:
    # The server's log has the error; visitors do not see it.
    return _message(500, "Please try again.")
