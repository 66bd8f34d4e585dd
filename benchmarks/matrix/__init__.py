"""Every aggregate over every kind of key and window, in process, beside DuckDB and Polars."""
