"""Looking at a substrate: measurements of its pairs and a contact sheet."""
