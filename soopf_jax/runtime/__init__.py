"""Tools for every part of the package: command lines, progress, atomic files, hashes, texts and colours."""
