"""Every aggregate over every kind of key and window, and every kind of join, in process, beside DuckDB and Polars."""
