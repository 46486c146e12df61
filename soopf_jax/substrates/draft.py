"""What each support can use in, a different image for every pair out.

The supports take images in turn, each the next in its own random order. So every support gets a fair sample of the
images it can use, and a longer draft begins with a shorter one for as long as nobody runs out. A support that does run
out takes over an image from another support that can still replace it.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

import numpy as np
from jaxtyping import Bool


def draft(
    wishes: Mapping[int, Sequence[int]],
    rounds: int,
    usable: Callable[[int, int], bool],
    on_pick: Callable[[int], None] = lambda n: None,
) -> dict[int, list[int]] | None:
    """`rounds` images for every support, no image twice; None where there is no such choice.

    `wishes[support]` are all images in the order in which that support would like them; `usable(image, support)` tells
    whether it can use one, and is asked no earlier than needed. In every round the supports go in the order of
    `wishes`.
    """
    picked: dict[int, list[int]] = {support: [] for support in wishes}
    remaining = {support: iter(images) for support, images in wishes.items()}
    taken: set[int] = set()

    def pick(support: int, asking: frozenset[int]) -> bool:
        """One more image for a support, from those nobody has or from a support that is not itself asking."""
        # What is taken is never freed: an image passed over need not be looked at again.
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
    """The largest number of rounds that a draft can have.

    By Hall's theorem there is one exactly if any k supports have k images per round between them.
    """
    n_supports = usable.shape[1]
    subsets = [list(s) for size in range(1, n_supports + 1) for s in combinations(range(n_supports), size)]
    return min(int(usable[:, subset].any(axis=1).sum()) // len(subset) for subset in subsets)
