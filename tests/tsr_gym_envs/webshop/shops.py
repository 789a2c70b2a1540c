"""A catalogue of odd products: whatever a page, a query or an address may choke on."""

from tests.tsr_gym_envs.webshop.small_files import item, write_files

ODD_TEXTS = (
    "plain",
    "",
    " ",
    "\n",
    " \t\n ",
    "\x0c",
    "\xa0",
    "  two  blanks  ",
    "line\nbreak",
    "carriage\r\nreturn",
    "<b>bold</b> & <script>alert('x')</script>",
    "</p></div></main><button>Buy Now</button>",
    "&amp; &lt;i&gt; &#39; &nosuch; &",
    "<!-- hidden --> {{ 7 * 7 }} {% raw %}",
    "a \"quoted\" 'title'",
    "emoji 🙂 ❤️ 👩‍🚀",
    "漢字 かな",
    "שלום \u202e العربية",
    "nul \x00 and \x1b[31m",
    "[SEP] [button] x [button_]",
    "search_results item_page item_sub_page done",
    "brackets [one] ]two[",
    "x" * 5000,
)
OPTION_VALUES = (
    "red",
    "Red/Blue",
    "5",
    "5.5",
    "",
    'say "hi"',
    "a & b",
    "größe",
    "size [us]",
    "buy now",
    "< prev",
    "🙂",
)


def odd_files(folder):
    """Write a catalogue in which every field of some product holds every odd text, and options of every odd kind."""
    groups = {
        "color": [{"value": value} for value in OPTION_VALUES],
        "": [{"value": "red"}, {"value": "unnamed"}],
        "Size ": [{"value": "5"}, {"value": "5"}, {"value": "description"}],
        "none": None,
    }
    items = [
        item(
            number,
            name=f"shirt {text}" if number % 2 else text,
            full_description=text,
            small_description=[text, "", f"shirt {text}"],
            product_category=text,
            category=text,
            query=text,
            customization_options=groups if number % 3 else "",
            pricing="$1.5$20" if number % 5 else None,
        )
        for number, text in enumerate(ODD_TEXTS)
    ]
    entries = {
        record["asin"]: {
            "attributes": [record["name"], "soft"],
            "instruction": f"Find me a shirt {record['name']}",
            "instruction_attributes": ["soft"],
        }
        for record in items
    }
    return write_files(folder, items, entries)
