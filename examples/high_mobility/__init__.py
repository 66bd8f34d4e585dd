"""Phones that move too fast from one call to the next."""
