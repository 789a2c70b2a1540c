"""The shop over HTTP: agents' pages, addresses that can be gone back to, and nothing for those who mean harm."""

import http.client
import re
import socket

import httpx
import numpy as np
import pytest
from bs4 import BeautifulSoup

from tests.tsr_gym_envs.webshop.shops import BOLD, EVIL, NUM_SHIRTS, goal_of, hostile_catalogue, hostile_env, odd_files
from tsr_gym.tree import Tree
from tsr_gym_envs.serving import serving
from tsr_gym_envs.webshop.catalogue.opening import import_catalogue
from tsr_gym_envs.webshop.site import HEADERS, MAX_BODY, MAX_QUERY, shop_site
from tsr_gym_envs.webshop.trips import Trips, Visitors
from tsr_gym_envs.webshop.web_page import text_of


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory):
    return hostile_catalogue(tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="module")
def shop(catalogue, tmp_path_factory):
    """A running shop in which everybody is to buy the hostile shirt: its address, and the folder of its files."""
    env = hostile_env(catalogue)
    out = tmp_path_factory.mktemp("trips")
    with serving(shop_site(Trips(env, goal=goal_of(env, BOLD), seed=1, out=out))) as url:
        yield url, out


def shopper(url, **settings):
    """Return a client that behaves like a browser: it keeps cookies, follows redirects and names its origin."""
    return httpx.Client(base_url=url, follow_redirects=True, headers={"origin": url}, timeout=30, **settings)


@pytest.fixture
def client(shop):
    with shopper(shop[0]) as client:
        client.get("/")
        yield client


def links(page):
    """Return the addresses of a page's links by their texts."""
    return {link.get_text(): link["href"] for link in BeautifulSoup(page.text, "html.parser").find_all("a")}


def follow(client, page, text):
    return client.get(links(page)[text])


def search(client, page, words):
    form = BeautifulSoup(page.text, "html.parser").select_one("form[role=search]")
    assert form["method"] == "get"
    return client.get(form["action"], params={form.select_one("input")["name"]: words})


def buy(client, page):
    form = BeautifulSoup(page.text, "html.parser").select_one("form.buy")
    assert form["method"] == "post"
    return client.post(form["action"])


def where(page):
    return page.url.path


def shop_through(client):
    """Buy the shirt that is wanted, and return all pages on the way."""
    pages = [client.get("/")]
    pages.append(search(client, pages[-1], "soft shirt"))
    for text in ("B000000000", "Description", "< Prev", BOLD, "m"):
        pages.append(follow(client, pages[-1], text))
    return [*pages, buy(client, pages[-1])]


def test_every_page_reads_as_what_an_agent_observes_and_the_trip_is_kept(shop, tmp_path):
    url, out = shop
    files = set(out.iterdir())
    with shopper(url) as client:
        pages = shop_through(client)
    assert [where(page) for page in pages] == [f"/1/{number}" for number in range(8)]
    (file,) = set(out.iterdir()) - files
    tree = Tree.load(file)
    assert [text_of(page.text, "text_options") for page in pages] == [node.observation for node in tree.nodes]
    turns = ["search[soft shirt]"]
    turns += [f"click[{name}]" for name in ("b000000000", "description", "< prev", BOLD, "m", "buy now")]
    assert [node.candidate.text for node in tree.nodes[1:]] == turns
    assert list(tree.played) == list(range(8))
    assert tree.nodes[-1].terminated
    receipt = BeautifulSoup(pages[-1].text, "html.parser")
    assert receipt.select_one(".score strong").get_text() == f"{100 * tree.nodes[-1].reward:.0f}"
    assert receipt.select_one(".next code").get_text() == file.name
    parts = dict(zip(receipt.select(".parts dt"), receipt.select(".parts dd"), strict=True))
    assert {name.get_text(): part.get_text() for name, part in parts.items()}["Options"] == "100 %"


def test_results_have_pages_that_end(client):
    page = search(client, client.get("/"), "shirt")
    seen, numbers = set(), []
    while True:
        soup = BeautifulSoup(page.text, "html.parser")
        seen.update(link.get_text() for link in soup.select("[data-agent=product]"))
        numbers.append(soup.h1.get_text())
        if "Next >" not in links(page):
            break
        page = follow(client, page, "Next >")
    assert len(seen) == NUM_SHIRTS
    assert numbers == [f"Page {number} (Total results: {NUM_SHIRTS})" for number in (1, 2, 3)]
    assert BeautifulSoup(follow(client, page, "← Previous page").text, "html.parser").h1.get_text() == numbers[1]


def test_an_older_page_is_unchanged_and_the_shop_continues_from_it(client):
    results = search(client, client.get("/"), "soft shirt")
    second = follow(client, results, "Next >")
    item = follow(client, results, "B000000000")
    after = follow(client, item, "red")
    for page in (results, second, item, after):
        assert text_of(client.get(page.url).text, "text_options") == text_of(page.text, "text_options")
    other = follow(client, item, "🙂")
    assert "You have chosen color: 🙂" in text_of(other.text, "text_options")
    assert follow(client, after, "m").text.count('aria-checked="true"') == 2
    assert where(follow(client, item, "red")) == where(after)
    # Who comes back to the shop's door stands where the latest page was opened.
    assert where(client.get("/")) == "/1/6"


def test_after_the_purchase_every_way_leads_to_the_receipt_and_then_to_the_next_task(shop):
    with shopper(shop[0]) as client:
        pages = shop_through(client)
        before = len(list(shop[1].iterdir()))
        end = where(pages[-1])
        assert "This task has ended" in client.get(where(pages[2])).text
        assert where(follow(client, pages[1], "B000000001")) == end
        assert where(search(client, pages[0], "other")) == end
        assert where(buy(client, pages[-2])) == end
        assert where(client.get("/")) == end
        assert len(list(shop[1].iterdir())) == before
        form = BeautifulSoup(client.get(end).text, "html.parser").select_one("form.next")
        assert where(client.post(form["action"])) == "/2/0"
        gone = client.get(end)
        assert gone.status_code == 410
        assert "You have begun another task since" in gone.text
        assert where(search(client, client.get("/"), "shirt")) == "/2/1"


@pytest.mark.parametrize(
    ("address", "status", "text"),
    [
        ("/nowhere", 404, "There is no such page"),
        ("/1/0/nowhere", 404, "There is no such page"),
        ("/1/1", 404, "You have not been on such a page"),
        ("/2/0", 404, "You have not been on such a page"),
        ("/0/0", 410, "You have begun another task since"),
        ("/1/-1", 404, "no such address"),
        ("/1/x", 404, "no such address"),
        ("/1/٣", 404, "no such address"),
        (f"/1/{'9' * 5000}", 404, "no such address"),
        ("/1/0/click?name=b0unknown00", 404, "The page has no “b0unknown00” to click"),
        ("/1/0/click?name=buy+now", 405, "Press the button to buy"),
        ("/1/0/click?name=search", 404, "The page has no “search” to click"),
        ("/1/0/click", 404, "The page has no “” to click"),
        ("/1/0/click?name=%FF%00%0A", 404, "to click"),
        ("/1/0/buy", 405, "This is not a page to look at"),
        ("/next", 405, "This is not a page to look at"),
        (f"/1/0/search?keywords={'a' * (MAX_QUERY + 1)}", 414, "at most 500 letters, and this one has 501"),
    ],
)
def test_a_missing_page_has_a_link_back(client, address, status, text):
    page = client.get(address)
    assert page.status_code == status
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert text in page.text
    assert where(follow(client, page, "Back to the shop")) == "/1/0"


@pytest.mark.parametrize("address", ["/", "/1/0", "/1/0/search", "/1/0/click", "/static/shop.css"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_wrong_methods_are_refused(client, address, method):
    assert client.request(method, address).status_code == 405


@pytest.mark.parametrize("name", [" Buy Now ", "buy now]", "buy now]\n", "BUY NOW]\nx", "\nbuy now", "[buy now"])
@pytest.mark.parametrize("rules", ["fixed", "original"])
def test_no_link_buys_however_it_is_written(catalogue, tmp_path, name, rules):
    trips = Trips(hostile_env(catalogue, rules=rules), seed=1, out=tmp_path)
    with serving(shop_site(trips)) as url, shopper(url) as client:
        item = follow(client, search(client, client.get("/"), "soft shirt"), "B000000000")
        assert client.get(f"{where(item)}/click", params={"name": name}).status_code in (404, 405)
        assert list(tmp_path.iterdir()) == []


PATHS = [
    "../page.py", "%2e%2e/page.py", "..%2fpage.py", "..%5cpage.py", "/etc/passwd", "%00", "templates/base.html", "",
]  # fmt: skip


PATHS += ["../" * 20 + "etc/passwd", "%2e%2e/" * 10 + "etc/passwd"]


def test_an_empty_search_stays_and_a_long_one_is_taken_with_its_blanks_tidied(client):
    for words in ("", "   ", "\t\n"):
        page = client.get("/1/0/search", params={"keywords": words})
        assert (page.status_code, where(page)) == (200, "/1/0")
    page = client.get("/1/0/search", params={"keywords": "a" * MAX_QUERY})
    assert (page.status_code, where(page)) == (200, "/1/1")
    page = client.get("/1/0/search", params={"keywords": " shirt\n\tsoft\u2028 "})
    assert BeautifulSoup(page.text, "html.parser").select_one("form.quick input")["value"] == "shirt soft"


def test_queries_and_products_are_text_on_every_page(client):
    query = "\"><script>alert(1)</script> ]click[buy now] {{ 7 * 7 }} ' onfocus=alert(1) autofocus"
    page = client.get("/1/0/search", params={"keywords": query})
    assert page.status_code == 200
    soup = BeautifulSoup(page.text, "html.parser")
    assert soup.select_one("form.quick input")["value"] == query.lower()
    harmless(page)
    pages = shop_through(client)
    pages += [follow(client, pages[2], "Features"), client.get("/1/0/click", params={"name": EVIL})]
    for page in pages:
        harmless(page)
    assert all(EVIL in BeautifulSoup(page.text, "html.parser").get_text() for page in pages)


def harmless(page):
    """Check that a page holds no markup but the shop's, and loads nothing from elsewhere."""
    soup = BeautifulSoup(page.text, "html.parser")
    assert not soup.find_all(["script", "img", "iframe", "object", "embed", "style", "base"])
    for tag in soup.find_all(True):
        assert not [name for name in tag.attrs if name.startswith("on") or name in ("style", "srcdoc")]
        for name in ("href", "src", "action"):
            assert name not in tag.attrs or re.match(r"/(?!/)", tag[name]), tag


def test_every_option_of_a_product_can_be_chosen_by_its_link(client):
    item = follow(client, search(client, client.get("/"), "soft shirt"), "B000000000")
    chips = BeautifulSoup(item.text, "html.parser").select(".chip")
    assert len(chips) == 8
    for chip in chips:
        chip_after = BeautifulSoup(client.get(chip["href"]).text, "html.parser").select_one(".chip[aria-checked=true]")
        assert chip_after.get_text() == chip.get_text()


@pytest.mark.parametrize("rules", ["fixed", "original"])
def test_links_of_odd_catalogues_lead_where_an_agents_clicks_lead(tmp_path, rules):
    catalogue = import_catalogue(odd_files(tmp_path / "files"), tmp_path / "store").path
    agent = hostile_env(catalogue, rules=rules, show_attrs=True).unwrapped
    rng = np.random.default_rng(2)
    trips = Trips(hostile_env(catalogue, rules=rules, show_attrs=True), goal=3, seed=1)
    kinds = set()
    with serving(shop_site(trips)) as url, shopper(url) as client:
        for _ in range(8):
            page = client.post("/next") if kinds else client.get("/")
            agent.reset(options={"goal": 3})
            for _ in range(25):
                tags = BeautifulSoup(page.text, "html.parser").select("[data-agent]:not([data-agent=hidden])")
                tags = [tag for tag in tags if tag.name == "a"]
                if tags and agent.state.page != "index":
                    link = tags[rng.integers(len(tags))]
                    page, action = client.get(link["href"]), f"click[{link.get_text().lower()}]"
                else:
                    page, action = search(client, page, "shirt"), "search[shirt]"
                before = agent.state
                expected, *_ = agent.step(action)
                if page.status_code == 404:
                    # A name that an agent's text cannot hold.
                    assert agent.state == before
                    break
                if page.status_code == 405:
                    # In the original's shop this option buys; here nothing but the button does.
                    assert (rules, action) == ("original", "click[buy now]")
                    break
                assert text_of(page.text, agent.settings.observation_mode) == expected
                kinds.add(agent.state.page)
    assert kinds == {"index", "search_results", "item_page", "item_sub_page"}


def test_all_answers_carry_the_headers_that_keep_them_to_themselves(client):
    answers = [client.get(address, follow_redirects=False) for address in ("/", "/1/0", "/nowhere", "/static/shop.css")]
    answers.append(client.get("/1/0/search?keywords=a", follow_redirects=False))
    answers += [client.post("/next", headers={"origin": "https://evil.example"}), client.put("/")]
    answers.append(client.get("/", headers={"host": "evil.example"}))
    assert [answer.status_code for answer in answers] == [303, 200, 404, 200, 303, 403, 405, 403]
    for answer in answers:
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
        assert "server" not in answer.headers
    assert "script-src" not in HEADERS["content-security-policy"]
    assert HEADERS["content-security-policy"].startswith("default-src 'none';")
    assert answers[1].headers["cache-control"] == "no-store"


def test_links_of_other_sites_change_nothing_and_the_cookie_is_for_the_shop_alone(shop, client):
    for site in ("cross-site", "same-site"):
        for address in ("/1/0/search?keywords=a", "/1/0/click?name=next"):
            assert client.get(address, headers={"sec-fetch-site": site}).status_code == 403
        assert client.get("/1/1").status_code == 404
        assert client.get("/1/0", headers={"sec-fetch-site": site}).status_code == 200
    name, _, rest = httpx.get(shop[0]).headers["set-cookie"].partition("=")
    token, *rules = rest.split("; ")
    assert (name, len(token)) == (f"webshop_{shop[0].rpartition(':')[2]}", 43)
    assert {rule.lower() for rule in rules} == {"httponly", "path=/", "samesite=strict"}


@pytest.mark.parametrize(
    "value", ["", "x", "a" * 43, "a" * 4000, '"\\', ";;==", "é".encode(), b"\xff\xfe", "../../etc/passwd"]
)
def test_an_unknown_cookie_is_a_new_visitors(shop, value):
    name = f"webshop_{shop[0].rpartition(':')[2]}".encode()
    value = value.encode() if isinstance(value, str) else value
    answer = httpx.get(f"{shop[0]}/", headers={b"cookie": name + b"=" + value})
    assert answer.status_code == 303
    # The shop's own token, not the one that came.
    token = answer.headers["set-cookie"].partition("=")[2].partition(";")[0]
    assert len(token) == 43
    assert token.encode() != value
    lost = httpx.get(f"{shop[0]}/1/0", headers={b"cookie": name + b"=" + value})
    assert lost.status_code == 404
    assert "Your visit is over, or your browser keeps no cookies" in lost.text


def test_visitors_have_trips_of_their_own(shop):
    with shopper(shop[0]) as first, shopper(shop[0]) as other:
        first.get("/")
        other.get("/")
        assert other.get(where(search(first, first.get("/1/0"), "shirt"))).status_code == 404
        search(other, other.get("/1/0"), "soft")
        assert 'value="shirt"' in first.get("/1/1").text
        assert 'value="soft"' in other.get("/1/1").text


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "", "http://127.0.0.1:1", None])
def test_forms_of_other_sites_are_refused(shop, origin):
    with shopper(shop[0]) as client:
        pages = [client.get("/"), client.get("/1/0/search?keywords=soft"), client.get("/1/1/click?name=b000000000")]
        before = len(list(shop[1].iterdir()))
        del client.headers["origin"]
        headers = {} if origin is None else {"origin": origin}
        for address in ("/1/2/buy", "/next"):
            assert client.post(address, headers=headers).status_code == 403
        assert len(list(shop[1].iterdir())) == before
        assert text_of(client.get("/1/2").text, "text") == text_of(pages[-1].text, "text")
        assert client.get("/1/3").status_code == 404


def test_on_loopback_the_shop_answers_to_its_own_names_and_elsewhere_to_any(shop, catalogue):
    names = dict.fromkeys(["evil.example", "127.0.0.1.evil.example", "localhost.", "", "[::1", "127.0.0.2"], 403)
    names |= dict.fromkeys(["127.0.0.1", "localhost:3000", "LOCALHOST", "[::1]:80"], 303)
    assert {host: httpx.get(shop[0], headers={"host": host}).status_code for host in names} == names
    with serving(shop_site(Trips(hostile_env(catalogue), seed=1), host="0.0.0.0")) as url:
        assert httpx.get(url, headers={"host": "shop.example"}).status_code == 303


@pytest.mark.parametrize("path", PATHS)
def test_no_file_outside_of_its_folder_is_served(shop, path):
    # http.client sends the path as it is.
    connection = http.client.HTTPConnection("127.0.0.1", int(shop[0].rpartition(":")[2]), timeout=30)
    connection.request("GET", f"/static/{path}")
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    assert answer.status in (307, 404), body
    assert b"root:" not in body
    assert b"Starlette" not in body


def test_styles_and_pictures_are_served(client):
    soup = BeautifulSoup(client.get("/").text, "html.parser")
    for link in soup.find_all("link"):
        assert client.get(link["href"]).status_code == 200
    style = client.get("/static/shop.css")
    assert style.headers["content-type"].startswith("text/css")
    pictures = re.findall(r'url\("([^"]+)"\)', style.text)
    assert len(pictures) == 5
    for picture in pictures:
        assert client.get(f"/static/{picture}").headers["content-type"] == "image/svg+xml"


def test_a_mistake_of_the_shop_shows_visitors_no_code(catalogue, capfd):
    trips = Trips(hostile_env(catalogue), seed=1)

    def fail(*_):
        raise RuntimeError("secret of the shop")

    trips.step = fail
    with serving(shop_site(trips)) as url, shopper(url) as client:
        client.get("/")
        page = client.get("/1/0/search?keywords=shirt")
    assert page.status_code == 500
    assert "Please try again" in page.text
    assert "secret" not in page.text
    assert "Traceback" not in page.text
    assert {name: page.headers[name] for name in HEADERS} == HEADERS
    assert "secret of the shop" in capfd.readouterr().err


def test_surplus_visitors_begin_anew_and_a_trip_that_is_too_long_ends_in_a_message(catalogue):
    site = shop_site(Trips(hostile_env(catalogue), seed=1, max_pages=3), Visitors(max_visitors=1))
    with serving(site) as url, shopper(url) as first, shopper(url) as second:
        first.get("/")
        second.get("/")
        assert first.get("/1/0").status_code == 404
        assert where(first.post("/next")) == "/1/0"
        assert second.get("/1/0").status_code == 404
        first.get("/")
        for number in range(5):
            page = first.get("/1/0/search", params={"keywords": f"shirt {number}"})
            assert page.status_code == (200 if number < 2 else 429)
        assert "You have opened too many pages" in page.text


def test_turns_are_counted_and_end_the_task(catalogue, tmp_path):
    trips = Trips(hostile_env(catalogue, max_turns=2), seed=1, out=tmp_path)
    with serving(shop_site(trips)) as url, shopper(url) as client:
        first = client.get("/")
        assert "Turns left: 2" in first.text
        second = search(client, first, "shirt")
        assert "Turns left: 1" in second.text
        last = follow(client, second, "Next >")
        assert "You have no turns left" in last.text
        (file,) = tmp_path.iterdir()
        assert file.name in last.text
        assert where(search(client, last, "more")) == where(last)
        form = BeautifulSoup(last.text, "html.parser").select_one("form.next")
        assert where(client.post(form["action"])) == "/2/0"


def test_visitors_of_equal_seeds_are_given_equal_tasks(catalogue):
    def tasks(seed):
        with serving(shop_site(Trips(hostile_env(catalogue), seed=seed))) as url, shopper(url) as client:
            pages = [client.get("/"), *(client.post("/next") for _ in range(9))]
            return [text_of(page.text, "text") for page in pages]

    assert tasks(4) == tasks(4)
    assert tasks(4) != tasks(5)


def test_the_original_shop_can_be_walked_as_well(catalogue):
    trips = Trips(hostile_env(catalogue, rules="original"), seed=1)
    with serving(shop_site(trips)) as url, shopper(url) as client:
        pages = shop_through(client)
        assert where(pages[-1]) == "/1/7"
        assert BeautifulSoup(pages[-1].text, "html.parser").select_one(".score")
        client.post("/next")
        # The original reads the last bracket that opens; such a query it cannot be asked.
        page = client.get("/2/0/search", params={"keywords": "a[b"})
        assert page.status_code == 400
        assert "Search for other words" in page.text


def test_visitors_without_a_cookie_replace_no_returning_visitor(catalogue, tmp_path):
    env = hostile_env(catalogue)
    visitors = Visitors(max_visitors=3)
    with serving(shop_site(Trips(env, goal=goal_of(env, BOLD), seed=1, out=tmp_path), visitors)) as url:
        with shopper(url) as client:
            page = search(client, client.get("/"), "soft shirt")
            for _ in range(10):
                # No cookie comes back from these.
                assert httpx.get(url).status_code == 303
            assert client.get(page.url).text == page.text
        assert len(visitors) <= 6


def test_requests_of_more_than_a_form_or_without_end_are_refused_and_half_a_form_is_no_error(shop, client, caplog):
    for path in ("/next", "/1/0/buy"):
        assert client.post(path, content=b"x" * (MAX_BODY + 1)).status_code == 413
        assert client.post(path, content=iter([b"x" * MAX_BODY, b"x"])).status_code == 413
        assert client.get("/1/0").status_code == 200
    port = int(shop[0].rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(b"GET /1/0/search?keywords=" + b"a" * 300_000)
        assert connection.recv(100).startswith(b"HTTP/1.1 400 ")
    head = f"POST /next HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nOrigin: {shop[0]}\r\nContent-Length: 9\r\n\r\nx"
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(head.encode())
    assert httpx.get(shop[0]).status_code == 303
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []
