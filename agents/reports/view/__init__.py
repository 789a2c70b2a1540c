"""The run viewer: runs and trees as JSON, pages that draw them, a local server, and the export as one file."""
