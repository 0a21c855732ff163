"""The probability that a proposed fact or a judged triple holds."""
