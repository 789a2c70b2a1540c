"""Pages as text, written out by hand."""

import pytest

from tsr_gym_envs.webshop.pages.layout import PageNode
from tsr_gym_envs.webshop.pages.text import MODES, join

NODES = (
    PageNode("text", " a feature "),
    PageNode("text", " "),
    PageNode("button", "Next >"),
    PageNode("product", "B01", clicked=True),
    PageNode("product", "B02"),
    PageNode("option", "red", clicked=True),
    PageNode("option", "blue"),
    PageNode("option", "5", clicked=True),
    PageNode("chosen", "You have chosen color: red"),
)
HEAD = (PageNode("text", "Instruction:"),)
RICH = (
    "You have clicked 5.\nYou have clicked red.\nInstruction:\n a feature \n \n[button] Next > [button_]\n"
    "\n[clicked button] B01 [clicked button_]\n\n[button] B02 [button_]\n"
    "  [clicked button] red [clicked button_]\n  [button] blue [button_]\n  [clicked button] 5 [clicked button_]\n"
)
TEXT = "Instruction: [SEP] a feature [SEP]  [SEP] Next > [SEP] B01 [SEP] B02 [SEP] red [SEP] blue [SEP] 5"


@pytest.mark.parametrize(
    ("mode", "wanted"),
    [("text", TEXT), ("text_options", f"{TEXT} [SEP] You have chosen color: red"), ("rich", RICH)],
)
def test_a_page_is_written_as_its_mode_says(mode, wanted):
    write = MODES[mode][0]
    assert join(mode, write(HEAD), write(NODES)) == wanted
    # In one piece as well as in two.
    assert join(mode, write(()), write(HEAD + NODES)) == wanted
