"""Many runs as one: which there are, what they cost, what is done and what is missing, and what comes out."""
