"""Policies: who answers the wishes of a search: language models through an engine, and random players."""
