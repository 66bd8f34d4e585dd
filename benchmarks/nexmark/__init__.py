"""Nexmark's 23 queries on every engine that can express them."""
