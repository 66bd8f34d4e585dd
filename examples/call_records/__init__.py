"""The query of StreamCloud's evaluation (figure 13, §X.A)."""
