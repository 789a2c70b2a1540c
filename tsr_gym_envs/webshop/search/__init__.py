"""Search: which products a query finds, and which queries an instruction suggests."""
