"""State as versioned Arrow data: chunks, the directory of them, and a local cache of decoded ones."""
