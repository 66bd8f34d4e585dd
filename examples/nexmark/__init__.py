"""Nexmark: an online auction as three streams, and 23 questions about it (see README.md)."""
