"""How long a run takes, from its sizes and from the speed of machines, which is measured or taken from data sheets.

In: the sizes of one arm's fits (Work), or an encoder's name and a number of images. Out: floating-point operations,
bytes of memory traffic, seconds. `fit_step_flops` has the formula of the operations; nothing here imports torch.
"""

import time
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

FLOAT_BYTES = 4
GEMM_SHAPE = (4096, 1024, 1024)
"""Rows, inner dimension and columns of the product whose rate stands for the machine's limit."""

RATIO_TO_FLOOR: Mapping[tuple[int, int], float] = {(64, 48): 3.9, (196, 48): 3.8, (196, 384): 1.4, (196, 1024): 1.2}
"""(N, D) -> time of a fit-step over its floor: 45 fits a lane, B = 64, S = O = 3, H = 64, 2 CPU cores, jaxlib 0.10."""
COMPILE_SECONDS = 5.0
"""Compilation of one arm's programs (training and evaluation), measured on the same machine."""
ENCODER_EFFICIENCY = 0.7
"""Rate of an encoder's forward pass over that of the product above: 0.5 (random-vit-s in JAX) to 0.8 (a ViT-S in
PyTorch), in CPU time of one core."""


class Work(NamedTuple):
    """The training of one arm."""

    fits: int
    steps: int
    batch: int
    """Pairs that count in a step of one fit."""
    patches: int
    channels: int
    supports: int = 3
    operations: int = 3
    hidden: int = 64
    router_width: int = 64


class Vit(NamedTuple):
    """A vision transformer with an MLP of four times its width, by the sizes that decide its forward pass."""

    width: int
    depth: int
    patches: int
    prefix: int
    """Class and register tokens before the patches."""
    patch_side: int


VITS: Mapping[str, Vit] = {
    "random-vit": Vit(1024, 24, 196, 1, 16),
    "random-vit-s": Vit(384, 12, 196, 1, 16),
    "random-dinov3-l": Vit(1024, 24, 196, 5, 16),
    "random-dinov3-s": Vit(384, 12, 196, 5, 16),
    "dinov3": Vit(1024, 24, 196, 5, 16),
    "dinov3-b": Vit(768, 12, 196, 5, 16),
    "dinov3-s": Vit(384, 12, 196, 5, 16),
    "siglip2": Vit(1024, 24, 256, 0, 16),
    "dinov2-l": Vit(1024, 24, 256, 1, 14),
    "dinov2-b": Vit(768, 12, 256, 1, 14),
    "dinov2-s": Vit(384, 12, 256, 1, 14),
    "clip-l": Vit(1024, 24, 256, 1, 14),
    "mae-b": Vit(768, 12, 196, 1, 16),
}
"""The benchmark's transformers by their names on the command line, at the image size that their checkpoints ask for."""


def fit_step_flops(work: Work) -> float:
    """The floor: router and pooling, forward and backward, and the operation MLP of one fit-step.

    8 B N D S + 6 B S D H.
    """
    batch, channels, supports = work.batch, work.channels, work.supports
    return 8.0 * batch * work.patches * channels * supports + 6.0 * batch * supports * channels * work.hidden


def parameters_per_fit(work: Work) -> int:
    """The number of parameters: W_z, p and q of the router, and the two layers of f."""
    router = (work.channels + work.patches + work.supports) * work.router_width
    return router + (work.channels + 1) * work.hidden + (work.hidden + 1) * work.operations


def fit_step_bytes(work: Work, sharing: int) -> float:
    """Memory traffic of one fit-step if no product's result stays in a cache; `sharing` fits read the same minibatch.

    Each pass over the tokens reads them once for all these fits: source and content, forward and backward. A fit has
    its own masks (7 passes: logits, softmax, pooling and their gradients), its own h (6 passes), and parameters,
    gradients and Adam's moments (8 passes).
    """
    cells = work.supports * work.operations
    pairs = work.batch * cells / (cells - 1)  # the held-out cell's pairs are computed too
    tokens = 4 * pairs * work.patches * work.channels / sharing
    masks = 7 * pairs * work.patches * work.supports
    pooled = 6 * pairs * work.supports * work.channels
    return FLOAT_BYTES * (tokens + masks + pooled + 8 * parameters_per_fit(work))


def machine_rate(budget: float = 1.0) -> float:
    """Operations per second of JAX's own float32 product on this device: the best within `budget` seconds."""
    import jax
    import jax.numpy as jnp

    product = jax.jit(jnp.matmul)
    rows, inner, columns = GEMM_SHAPE
    a, b = jnp.ones((rows, inner)), jnp.ones((inner, columns))
    product(a, b).block_until_ready()  # the first call compiles
    best, end = float("inf"), time.perf_counter() + budget
    while best == float("inf") or time.perf_counter() < end:
        begin = time.perf_counter()
        product(a, b).block_until_ready()
        best = min(best, time.perf_counter() - begin)
    return 2.0 * rows * inner * columns / best


def ratio_to_floor(patches: int, channels: int) -> float:
    """The time of a fit-step divided by its floor, interpolated between measured sizes in the logarithm of N D."""
    sizes, ratios = zip(*sorted((n * d, ratio) for (n, d), ratio in RATIO_TO_FLOOR.items()), strict=True)
    return float(np.interp(np.log(patches * channels), np.log(sizes), ratios))


def seconds(work: Work, rate: float) -> float:
    """Training of one arm on a CPU with this machine_rate, compilation included."""
    floor = work.fits * work.steps * fit_step_flops(work) / rate
    return COMPILE_SECONDS + ratio_to_floor(work.patches, work.channels) * floor


def forward_flops(vit: Vit) -> float:
    """Operations of one image's forward pass: T tokens of width W through blocks of 24 T W^2 + 4 T^2 W, and patches."""
    width, tokens = vit.width, vit.patches + vit.prefix
    block = 24.0 * tokens * width**2 + 4.0 * tokens**2 * width
    return vit.depth * block + 2.0 * vit.patches * width * 3 * vit.patch_side**2


def encode_seconds(encoder_name: str, images: int, rate: float) -> float | None:
    """Forward passes of that many images at this machine_rate; None for an encoder of unknown size."""
    vit = VITS.get(encoder_name)
    return None if vit is None else images * forward_flops(vit) / (ENCODER_EFFICIENCY * rate)
