"""The rounding of `benchmarks/precision.py`, against float64 products of rounded matrices."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
from benchmarks.precision import round_products
round_products(7)
import jax, jax.numpy as jnp, numpy as np
stream = np.random.default_rng(0)
a, b = (jnp.asarray(stream.normal(size=(32, 32)), jnp.float32) for _ in range(2))

def rounded(x):  # bfloat16 keeps 7 bits
    return np.asarray(jnp.asarray(x, jnp.float32).astype(jnp.bfloat16), np.float64)

product = rounded(a) @ rounded(b)
for multiply in (lambda a, b: a @ b, lambda a, b: jnp.einsum("ij,jk->ik", a, b), jax.vmap(jnp.dot, (0, None))):
    np.testing.assert_allclose(jax.jit(multiply)(a, b), product, atol=1e-5)
gradient = jax.jit(jax.grad(lambda a: jnp.sum((a @ b) ** 2)))(a)
np.testing.assert_allclose(gradient, rounded(2 * product) @ rounded(b).T, atol=1e-3)
assert np.abs(product - np.asarray(a, np.float64) @ np.asarray(b, np.float64)).max() > 1e-2
"""


def test_inputs_of_products_and_of_their_gradients_are_rounded():
    root = Path(__file__).parent.parent
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
