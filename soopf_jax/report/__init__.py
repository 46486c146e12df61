"""What a person reads: tables, figures and a page, all made from a Result."""
