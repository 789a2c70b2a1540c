"""Probing: what a guide is worth (`calibrate`) and what a success costs (`probe`), before anything is learned."""
