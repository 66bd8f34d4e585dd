"""Twitter NLP, an application of Gedik et al. (§7.2)."""
