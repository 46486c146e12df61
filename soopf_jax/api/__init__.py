"""The Python API: what `import soopf_jax as soopf` offers. Names, values or arrays in, a Result out."""
