"""Retrieval QA: answer a question by searching a corpus over several turns."""
