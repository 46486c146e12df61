"""Whatever happens: no wrong number, no finished work lost, one plain line, and the next run succeeds."""

import pytest

from tests.faults.catalogue import CATALOGUE


def check(tally):
    if tally.skipped:
        pytest.skip(tally.skipped)
    print(f"{tally.fault}: {tally.tries} tries")
    assert tally.problems == []
    assert (tally.survived, tally.wrong, tally.lost) == (tally.tries, 0, 0)
    assert tally.tries > 0


@pytest.mark.parametrize("name", [name for name, fault in CATALOGUE.items() if fault.cheap])
def test_it_survives(name, tmp_path):
    check(CATALOGUE[name].tally(tmp_path, short=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", CATALOGUE)
def test_it_survives_many_times(name, tmp_path):
    check(CATALOGUE[name].tally(tmp_path, short=False, seed=1))
