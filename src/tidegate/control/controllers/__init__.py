"""The controllers, one a file: settings that say how many instances a subquery should have."""
