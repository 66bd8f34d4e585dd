"""What happened and why: the ledger of control loops, its explanations and its export."""
