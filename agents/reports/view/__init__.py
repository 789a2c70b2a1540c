"""The run viewer: what runs and trees say as JSON, pages that show it in a browser, a server for both, and one file."""
