"""The original data sets: download, check, unpack."""
