"""What a page shows, and how it reads as text."""
