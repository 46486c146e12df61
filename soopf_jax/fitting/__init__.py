"""From a table of tokens to trained readouts: splits, objectives, and the one program that trains every fit."""
