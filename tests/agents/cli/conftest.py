"""What the tests of the command line share: the small model and the short run of the agents' tests."""

from tests.agents.conftest import base_model, chat_model, undisturbed  # noqa: F401
