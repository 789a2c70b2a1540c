"""The shop as a web site for people."""
