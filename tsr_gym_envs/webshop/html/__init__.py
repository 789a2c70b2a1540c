"""Pages in HTML: what a person shops in, and the mode ``html``."""
