"""The published experiments: what the papers report, the same at our scale, and how the two are shown together."""
