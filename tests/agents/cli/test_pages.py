"""Pages for people: passages with their titles, a shop's page in lines, boards as they are."""

from tsr_gym.agents.cli.game import readable


def test_passages_stand_below_the_question_with_their_titles():
    text = '\n\n<information>Doc 1(Title: "Rome") A city.\nOf stone.\nDoc 2(Title: "Oslo") A port.</information>\n\n'
    assert readable(text, asked="Where?").splitlines() == [
        *("Where?", "", "[1] Rome", "    A city. Of stone.", "", "[2] Oslo", "    A port.")
    ]
    assert readable("<information>nothing found</information> go on") == "nothing found\n\ngo on"


def test_buttons_of_a_shop_share_a_line_and_are_not_broken():
    text = "Instruction: [SEP] Buy jeans [SEP] Back to Search [SEP] Next > [SEP] B012345678 [SEP] Jeans [SEP] $9"
    page = readable(f"{text} [SEP] Buy Now", buttons=("back to search", "next >", "b012345678", "buy now"))
    assert page.splitlines() == [
        *("Instruction:", "Buy jeans", "[Back to Search] [Next >]", "[B012345678] Jeans $9", "[Buy Now]")
    ]
    many = readable("A [SEP] " + " [SEP] ".join(["Two words"] * 30), buttons=("two words",)).splitlines()
    assert max(map(len, many)) <= 100
    assert all(line.count("[") == line.count("]") for line in many)


def test_anything_else_stays_as_it_is():
    for text in ("#P_XO#\n######", "", "a\n\nb [SEP]c"):
        assert readable(text) == text
