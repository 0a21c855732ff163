"""The paper's tables and figures, made again: which runs they need, the runs' records, and the pages made of them."""
