"""WebShop: find, configure and buy a product that an instruction describes."""
