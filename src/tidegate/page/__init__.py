"""A page in the browser about a query that runs or has run: a view of its ledger, served on the loopback address."""
