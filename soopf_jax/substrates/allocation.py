"""Distributes images among the supports that edit them; no image is used twice.

In: the images that each support can use. Out: the same number of images for every support. The supports take turns,
and each takes the next image in a random order of its own, so every support gets a fair sample. A larger allocation
starts with the same images as a smaller one until a support runs out of images. That support then takes over an image
from another support that can still replace it.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

import numpy as np
from jaxtyping import Bool


def allocate(
    wishes: Mapping[int, Sequence[int]],
    rounds: int,
    usable: Callable[[int, int], bool],
    on_pick: Callable[[int], None] = lambda n: None,
) -> dict[int, list[int]] | None:
    """Give every support `rounds` images, no image twice.

    Args:
        wishes: For each support, all images in its order of preference. Supports choose in the order of the keys.
        rounds: The number of images for each support.
        usable: `usable(image, support)` tells whether the support can use the image. It is called as late as possible.
        on_pick: Called with 1 after each choice, to show progress.

    Returns:
        The images of each support, or None if no such allocation exists.
    """
    picked: dict[int, list[int]] = {support: [] for support in wishes}
    remaining = {support: iter(images) for support, images in wishes.items()}
    taken: set[int] = set()

    def pick(support: int, asking: frozenset[int]) -> bool:
        """Give a support one more image: a free one, or one of a support that is not in `asking`."""
        # A taken image is never freed, so an image that was passed over need not be considered again.
        for image in remaining[support]:
            if image not in taken and usable(image, support):
                taken.add(image)
                picked[support].append(image)
                return True
        for other in (s for s in picked if s not in asking):
            place = next((i for i, image in enumerate(picked[other]) if usable(image, support)), None)
            if place is not None and pick(other, asking | {other}):
                picked[support].append(picked[other][place])
                picked[other][place] = picked[other].pop()
                return True
        return False

    for _ in range(rounds):
        for support in wishes:
            if not pick(support, frozenset({support})):
                return None
            on_pick(1)
    return picked


def most_rounds(usable: Bool[np.ndarray, "images supports"]) -> int:
    """The largest number of rounds that an allocation can have.

    By Hall's theorem, r rounds are possible exactly if any k supports together can use at least r * k images.
    """
    n_supports = usable.shape[1]
    subsets = [list(s) for size in range(1, n_supports + 1) for s in combinations(range(n_supports), size)]
    return min(int(usable[:, subset].any(axis=1).sum()) // len(subset) for subset in subsets)
