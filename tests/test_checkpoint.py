import jax.numpy as jnp
import numpy as np
import pytest

from soopf_jax.fitting.checkpoint import Checkpoints, fingerprint


def tree_of(seed: int):
    stream = np.random.default_rng(seed)
    return {
        "w": jnp.asarray(stream.normal(size=(2, 3, 5)), jnp.float32),
        "count": jnp.int32(7),
        "alive": jnp.asarray(stream.random((2, 3)) < 0.5),
    }


@pytest.mark.parametrize("bit", range(32))
def test_any_flipped_bit_changes_the_fingerprint(bit):
    tree = tree_of(0)
    before = int(fingerprint(tree))
    words = np.asarray(tree["w"]).copy().view(np.uint32)
    for place in range(words.size):
        flipped = words.copy()
        flipped.flat[place] ^= np.uint32(1 << bit)
        assert int(fingerprint(tree | {"w": jnp.asarray(flipped.view(np.float32))})) != before
        if place > 5:
            break
    assert int(fingerprint(tree | {"alive": ~tree["alive"]})) != before


def test_the_newest_checkpoint_comes_back_bit_for_bit(tmp_path):
    with Checkpoints(tmp_path / "c", seconds_between=0.0) as checkpoints:
        assert checkpoints.newest_step() is None
        for step in (10, 20):
            checkpoints.save(step, tree_of(step))
    with Checkpoints(tmp_path / "c", seconds_between=0.0) as checkpoints:
        assert checkpoints.newest_step() == 20
        found = checkpoints.restore(20, tree_of(0))
    for name, value in tree_of(20).items():
        np.testing.assert_array_equal(found[name], value)
    kept = [path.name for path in (tmp_path / "c").iterdir() if path.name.isdigit()]
    assert kept == ["20"], "older ones are removed"


def test_checkpoints_are_no_more_frequent_than_asked_for(tmp_path):
    assert Checkpoints(tmp_path / "c", seconds_between=0.0).due()
    checkpoints = Checkpoints(tmp_path / "d", seconds_between=1e6)
    assert not checkpoints.due()
    checkpoints._last -= 2e6
    with checkpoints:
        assert checkpoints.due()
        checkpoints.save(10, tree_of(0))
        assert not checkpoints.due()


def test_a_damaged_checkpoint_is_reported_removed_and_as_good_as_none(tmp_path, capsys):
    tree = {"w": jnp.asarray(np.random.default_rng(0).normal(size=4000), jnp.float32)}
    with Checkpoints(tmp_path / "c", seconds_between=0.0) as checkpoints:
        checkpoints.save(10, tree)
    largest = max((p for p in (tmp_path / "c").rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
    data = bytearray(largest.read_bytes())
    data[len(data) // 2] ^= 1
    largest.write_bytes(bytes(data))
    with Checkpoints(tmp_path / "c", seconds_between=0.0) as checkpoints:
        assert checkpoints.restore(10, tree) is None
        assert "start again" in capsys.readouterr().err
        checkpoints.save(20, tree)
    with Checkpoints(tmp_path / "c", seconds_between=0.0) as checkpoints:
        np.testing.assert_array_equal(checkpoints.restore(20, tree)["w"], tree["w"])


def test_a_checkpoint_that_cannot_be_written_is_reported_and_no_reason_to_stop(tmp_path, capsys):
    (tmp_path / "c").write_text("a file where the folder should be")
    with Checkpoints(tmp_path / "c", seconds_between=0.0) as checkpoints:
        checkpoints.save(10, tree_of(0))
    assert "cannot be written" in capsys.readouterr().err
