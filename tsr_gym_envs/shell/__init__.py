"""A shell in this process, over files in memory."""
