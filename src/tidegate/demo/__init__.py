"""Made-up inputs with the schemas of the papers, and the query that ``tidegate demo`` runs on one of them."""
