"""The stock exchange of Elasticutor (§5.4)."""
