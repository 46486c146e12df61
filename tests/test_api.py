"""The Python API as a notebook uses it: arrays or names in, a result that shows, saves and plots itself out."""

import hashlib
import json
import subprocess
import sys
import types
from dataclasses import FrozenInstanceError, fields
from functools import partial
from xml.etree import ElementTree

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell
from matplotlib.figure import Figure
from PIL import Image

import soopf_jax as soopf
from soopf_jax import bench
from soopf_jax.api.options import ProtocolOptions, protocol_of
from soopf_jax.api.show import MOST_ARMS
from soopf_jax.fitting.assignments import LEARNED
from soopf_jax.fitting.objectives import CORE
from soopf_jax.readouts.soopf import READOUT
from tests import report_result, test_npz, tiny_parts
from tests.planted import SMALL, SMALL_OPTIONS, planted_tokens
from tests.test_startup import HEAVY

# ------------------------------------------------------------------------------------------- tokens of one's own


def from_tokens(**changes):
    return soopf.FeatureTable.from_tokens(**test_npz.arrays(**changes))


def test_arrays_give_the_table_that_a_file_of_them_gives(tmp_path):
    np.savez(tmp_path / "tokens.npz", **test_npz.arrays())
    loaded, made = soopf.load_features(tmp_path / "tokens.npz"), from_tokens()
    for name in ("source", "delta", "region", "cell"):
        np.testing.assert_array_equal(getattr(made, name), getattr(loaded, name))
    assert made.grid == loaded.grid


@pytest.mark.parametrize("kind", [np.ndarray.tolist, jnp.asarray, torch.from_numpy])
def test_lists_jax_arrays_and_tensors_are_arrays_too(kind):
    given = test_npz.arrays()
    names = {axis: given.pop(axis).tolist() for axis in ("supports", "operations")}
    table = soopf.FeatureTable.from_tokens(**{name: kind(array) for name, array in given.items()}, **names)
    assert table.provenance == from_tokens().provenance


def test_the_callers_arrays_stay_as_they_are():
    given = test_npz.arrays()
    kept = {name: array.copy() for name, array in given.items()}
    soopf.FeatureTable.from_tokens(**given)
    assert all(np.array_equal(given[name], kept[name]) for name in given)


def test_the_digest_is_of_every_value_and_name():
    changed = (
        test_npz.with_value("source", (0, 0, 0), 7),
        test_npz.with_value("region", (0, 0), 1 - int(test_npz.arrays()["region"][0, 0] == 1)),
        {"operations": np.array(["hue", "blur"])},
        {"region": None},
    )
    digests = [from_tokens(**change).provenance["sha256"] for change in ({}, *changed)]
    assert len(set(digests)) == len(digests)
    assert digests[0] == from_tokens().provenance["sha256"]
    assert len(digests[0]) == len(hashlib.sha256().hexdigest())


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"source": np.zeros((24, 3))}, "source must be floating-point [pairs, patches, channels]"),
        ({"edited": np.zeros((24, 3, 5))}, "edited has 5 channels but source has 2"),
        ({"cell": np.arange(24) % 5}, "cell holds 4, outside 0..3"),
        ({"cell": [[1], [1, 2]]}, "cell cannot be read as an array"),
        ({"edited": torch.zeros(24, 3, 2, requires_grad=True)}, "edited cannot be read as an array"),
        ({"supports": ["floor"]}, "at least two supports"),
    ],
)
def test_arrays_that_do_not_fit_are_one_line(changes, says):
    with pytest.raises(soopf.UserError) as caught:
        from_tokens(**changes)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


# ------------------------------------------------------------------------------------------------- one run, many ways

TINY = "tests.tiny_parts:open_substrate", "tests.tiny_parts:open_encoder"
SMALL_PROTOCOL = {"protocol": SMALL, "assignments": "learned", "progress": False}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def small(cache):
    """A run of names only, a few seconds long."""
    dataset, encoder = TINY
    return soopf.benchmark(dataset=dataset, encoder=encoder, cache_dir=cache, **SMALL_PROTOCOL)


@pytest.fixture(scope="module")
def saved(small, tmp_path_factory):
    """Its folder."""
    return small.save(tmp_path_factory.mktemp("saved") / "run")


def test_the_command_line_takes_it_for_its_own_run(saved, cache, capsys):
    """The recorded configuration is the same, so the command finds its work done."""
    dataset, encoder = TINY
    options = ("--dataset", dataset, "--encoder", encoder, "--assignment", "learned", *SMALL_OPTIONS)
    assert bench.main([*options, "--cache-dir", str(cache), "--out", str(saved)]) == 0
    assert capsys.readouterr().out.startswith(f"already done: {saved}")


def test_names_values_and_functions_are_accepted_alike(small, cache):
    substrate = tiny_parts.open_substrate(soopf.SubstrateRequest("tiny"))
    result = soopf.benchmark(
        dataset=substrate,
        encoder=tiny_parts.open_encoder,
        readout=lambda: READOUT,
        assignments=[lambda: LEARNED],
        objective=CORE,
        seeds=2,
        restarts=1,
        steps=20,
        cache_dir=cache,
        progress=False,
    )
    assert result.fits.keys() == small.fits.keys()
    for name, column in small.fits.items():
        np.testing.assert_array_equal(result.fits[name], column)
    config = result.document["config"]
    assert (config["dataset"], config["encoder"]) == ("tiny", TINY[1])
    assert (config["readout"], config["assignment"], config["objective"]) == ("custom", ["custom-0"], "custom")
    assert config["features_key"] == small.document["config"]["features_key"]


def test_features_and_a_benchmark_of_them(small, cache):
    table = soopf.features(*TINY, cache_dir=cache, progress=False)
    np.testing.assert_array_equal(
        table.source[:3],
        np.float16(tiny_parts.encode(np.stack([tiny_parts.image_pair(0, pair)[0] for pair in range(3)]))),
    )
    result = soopf.benchmark(table, **SMALL_PROTOCOL)
    assert result.arms == small.arms
    assert result.document["config"]["features"].startswith("tiny-tiny-linear-float16-")


def test_progress_is_shown_on_stderr_unless_it_is_off(cache, capsys):
    table = soopf.features(*TINY, cache_dir=cache)
    soopf.benchmark(table, **SMALL_PROTOCOL)
    assert capsys.readouterr() == ("", "")
    soopf.benchmark(table, **SMALL_PROTOCOL | {"progress": True})
    out, err = capsys.readouterr()
    assert out == ""
    assert "fits per program" in err


@pytest.mark.usefixtures("no_report")
def test_an_interrupted_run_goes_on_and_a_finished_one_is_read(cache, tmp_path, small):
    trained = []

    def stop(arm):
        trained.append(arm)
        raise KeyboardInterrupt

    table = soopf.features(*TINY, cache_dir=cache, progress=False)
    run = partial(soopf.benchmark, table, **SMALL_PROTOCOL, out=tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        run(session=soopf.Session(on_arm=stop))
    (work,) = tmp_path.iterdir()
    assert sorted(path.name for path in work.glob("*.npz")) == ["learned-0.npz", "learned-1.npz"], "the fits are kept"
    kept = {path: path.stat().st_mtime_ns for path in work.glob("*.npz")}
    with pytest.raises(KeyboardInterrupt):
        run(session=soopf.Session(on_arm=stop))
    assert {path: path.stat().st_mtime_ns for path in work.glob("*.npz")} == kept, "and not trained again"
    result = run()
    assert result.arms == small.arms
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert run(session=soopf.Session(on_arm=stop)) == result, "nothing is trained"
    assert len(trained) == 2
    with pytest.raises(soopf.UserError, match="holds a run of another configuration; choose another out="):
        run(steps=21)


@pytest.mark.usefixtures("optimised")
def test_arrays_that_factor_perfectly_score_one():
    tokens = planted_tokens(np.random.default_rng(0))
    support, operation = np.array(["left", "right"])[tokens["cell"] // 2], tokens["cell"] % 2
    size = {"seeds": 2, "restarts": 2, "steps": 200}  # as in test_readme: the program is compiled once for both
    shuffled = np.random.default_rng(1).permutation(len(support))
    result = soopf.evaluate(
        tokens["source"][shuffled],
        tokens["edited"][shuffled],
        support[shuffled].tolist(),
        operation[shuffled],
        assignments=["factorial"],
        progress=False,
        **size,
    )
    (arm,) = result.arms.values()
    assert arm.inj.mean == 1.0
    assert list(arm.inj.per_cell) == [f"{s}/operation {o}" for s in ("left", "right") for o in (0, 1)]
    assert result.document["protocol"] == "custom"


def few_tokens(**labels):
    return soopf.evaluate(*[np.zeros((4, 3, 2))] * 2, **{"support": [0, 1, 0, 1], "operation": [0, 0, 1, 1]} | labels)


def open_tiny():
    return tiny_parts.open_substrate(soopf.SubstrateRequest("tiny"))


MISTAKES = [
    (lambda: soopf.benchmark(from_tokens(), encoder="pixels"), "leave encoder= or the table out"),
    (lambda: soopf.benchmark(from_tokens(), layer=3), "leave layer= or the table out"),
    (lambda: soopf.benchmark(dataset="mujocoo"), "unknown dataset 'mujocoo': did you mean 'mujoco'?"),
    (lambda: soopf.benchmark(encoder="dinov4"), "unknown encoder 'dinov4': did you mean 'dinov3'?"),
    (lambda: soopf.benchmark(encoder="pixels", layer=3, pairs_per_cell=5), "pixels has no layers; leave layer= out"),
    (lambda: soopf.benchmark(encoder=lambda request: 7), "the function given as encoder made an int"),
    (lambda: soopf.benchmark(dataset=open_tiny(), data_seed=3), "dataset tiny is open already; leave data_seed= out"),
    (lambda: soopf.benchmark(from_tokens(), assignments="lerned"), "unknown assignment 'lerned'"),
    (lambda: soopf.benchmark(from_tokens(), readout="sopf"), "unknown readout 'sopf': did you mean 'soopf'?"),
    (lambda: soopf.benchmark(from_tokens(), sedes=3), "unknown option 'sedes': did you mean 'seeds'?"),
    (lambda: soopf.benchmark(from_tokens(), protocol="quik"), "unknown protocol 'quik': did you mean 'quick'?"),
    (lambda: soopf.benchmark(from_tokens(), preset="our"), "unknown preset 'our': did you mean 'ours'?"),
    (lambda: soopf.benchmark(from_tokens(), seeds=0), "seeds must be at least 1"),
    (lambda: soopf.benchmark(from_tokens(), edits="two"), "two edits are tested on a table of their own"),
    (lambda: soopf.benchmark(from_tokens(), router=True, readout="mlp"), "a probe has no router; leave router= out"),
    (lambda: soopf.benchmark(from_tokens(), readout=READOUT, out="runs/x"), "give the readout as package.module:attr"),
    (lambda: soopf.features(lyer=3), "unknown option 'lyer': did you mean 'layer'?"),
    (lambda: few_tokens(support="abcd"), "support must be names or integers [pairs]"),
    (lambda: few_tokens(operation=[0.5] * 4), "operation must be names or integers [pairs], not float64 [4]"),
    (lambda: few_tokens(operation=[0, 1, 1]), "operation has 3 pairs but support has 4"),
    (lambda: soopf.evaluate(*[np.zeros((4, 3))] * 2, [0, 1] * 2, [0, 0, 1, 1]), "source must be floating-point"),
    (lambda: few_tokens(layer=1), "unknown option 'layer'"),
    (lambda: soopf.load("nowhere"), "nowhere is not a finished run"),
]


@pytest.mark.parametrize(("mistake", "says"), MISTAKES, ids=[says for _, says in MISTAKES])
def test_a_mistake_is_one_line_in_words_of_python(mistake, says):
    with pytest.raises(soopf.UserError) as caught:
        mistake()
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "--" not in str(caught.value)


def test_a_notebook_shows_a_mistake_without_its_traceback(capsys):
    shell = InteractiveShell.instance(colors="nocolor")
    shell.run_cell("import soopf_jax as soopf\nsoopf.benchmark(encoder='dinov4')")
    (line,) = capsys.readouterr().out.strip().splitlines()
    assert line.startswith("UserError: unknown encoder 'dinov4': did you mean 'dinov3'?")


WRONG_TYPES = {
    "benchmark('mujoco')": "the first argument of benchmark() is a FeatureTable; write dataset='mujoco'",
    "benchmark('tokens.npz')": "the first argument of benchmark() is a FeatureTable; write soopf.load_features(",
    "benchmark([1.0])": "a table must be a FeatureTable, not list; see FeatureTable.from_tokens",
    "benchmark(encoder=7)": "encoder must be a name, an Encoder or a function that makes one, not an int",
    "benchmark(assignments=[3])": "assignment must be a name, an Assignment or a function that makes one, not an int",
    "benchmark(protocol=(3, 2, 500))": "protocol= takes a Protocol, such as soopf.QUICK, not tuple",
    "benchmark(assignments=3)": "assignment must be a name, an Assignment or a function that makes one, not an int",
    "benchmark(seeds='many')": "seeds must be a whole number, not 'many'",
    "benchmark(seeds=2.5)": "seeds must be a whole number, not 2.5",
    "benchmark(learning_rate='x')": "the protocol takes numbers and names, not {'learning_rate': 'x'}",
    "benchmark(weights={'mask': 'x'})": "weights= takes numbers by the names of loss terms, such as {'mask': 0.5}, not",
    "benchmark(weights=3)": "weights= takes numbers by the names of loss terms",
}


def test_wrong_types_are_one_line_too():
    """In a process of its own: in this one, beartype would find them first."""
    program = """
import json, sys
import soopf_jax as soopf
for call in json.load(sys.stdin):
    try:
        eval(call, vars(soopf))
    except soopf.UserError as error:
        print(error)
"""
    calls = json.dumps([f"__import__('soopf_jax').{call}" for call in WRONG_TYPES])
    done = subprocess.run([sys.executable, "-c", program], input=calls, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    for line, says in zip(done.stdout.splitlines(), WRONG_TYPES.values(), strict=True):
        assert line.startswith(says)


def test_protocols_by_name_value_and_field():
    assert (soopf.QUICK.label, soopf.PAPER.label, soopf.FULL) == ("quick", "full", soopf.PAPER)
    changed = protocol_of("quick", {"seeds": 1, "alignment": "hard", "layer": 3})
    assert changed == soopf.Protocol(1, 2, 500, alignment="hard")
    assert protocol_of(None, {"edits": "two"}) == soopf.Protocol(5, 5, 2000)
    ours = protocol_of("quick", {"preset": "ours", "hidden": 8})
    assert ours == soopf.Protocol(3, 2, 500, router_input="rms", alignment="soft", hidden=8)
    assert ProtocolOptions.__optional_keys__ == {field.name for field in fields(soopf.Protocol)}


# ------------------------------------------------------------------------------------------------------- the result


def dealt(*arms):
    return soopf.Result(*report_result.dealt_result(arms or ("factorial", "learned")))


def test_a_result_that_was_saved_and_loaded_is_equal(small, saved):
    assert {path.name for path in saved.iterdir()} == {
        *("result.json", "fits.npz", "predictions.npz", "report.html", "figures"),
    }
    for path in (saved, str(saved / "result.json")):
        loaded = soopf.load(path)
        assert loaded == small
        assert loaded.arms == small.arms
    loaded.fits["inj"][0] += 0.5
    assert loaded != small


def test_a_changed_score_is_another_result():
    one, other = dealt(), dealt()
    assert one == other
    other.document["arms"][0]["inj"]["mean"] += 1e-9
    assert one != other
    assert one != one.document


@pytest.mark.usefixtures("no_report")
def test_saving_replaces_nothing_unasked(tmp_path):
    one, other = dealt(), dealt("learned")
    folder = one.save(tmp_path / "run")
    before = (folder / "result.json").stat().st_ino
    assert one.save(folder) == folder
    assert (folder / "result.json").stat().st_ino == before, "the same result is not written again"
    with pytest.raises(soopf.UserError, match="holds another result; choose another folder or add overwrite=True"):
        other.save(folder)
    assert soopf.load(folder) == one
    other.save(folder, overwrite=True)
    assert soopf.load(folder) == other
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.tex").write_text("")
    with pytest.raises(soopf.UserError, match="holds something that is no result"):
        one.save(tmp_path / "thesis", overwrite=True)
    assert (tmp_path / "thesis" / "chapter1.tex").exists()


def test_the_report_is_that_of_the_folder(small, saved, tmp_path):
    file = small.report(tmp_path / "x.html")
    assert file.read_bytes() == (saved / "report.html").read_bytes()
    assert b'id="examples"' in file.read_bytes(), "the images of a run that was just made are shown"
    with pytest.raises(soopf.UserError, match="is a folder"):
        small.report(tmp_path)


def test_the_frame_holds_the_numbers_of_the_file(small, saved):
    frame = small.to_frame()
    with np.load(saved / "fits.npz") as fits:
        assert len(frame) == len(fits["seed"]) == 2 * 9
        for name in ("seed", "restart", "selected", "failed", "validation", "inj", "non_injective"):
            np.testing.assert_array_equal(frame[name].to_numpy(), fits[name])
        cells = [f"{s}/{o}" for s in ("floor", "wall", "object") for o in ("hue", "invert", "pattern")]
        assert frame.held_out.tolist() == [cells[number] for number in fits["held_out"]]
    assert (frame.support + "/" + frame.operation == frame.held_out).all()
    assert set(frame.assignment) == {"learned"}
    by_cell = frame[frame.selected].groupby("held_out").inj.mean()
    assert by_cell.to_dict() == pytest.approx(small.arms["learned"].inj.per_cell)


def test_a_fit_that_saw_all_cells_has_no_held_out_cell_in_the_frame():
    result = soopf.Result(*report_result.dealt_two_edits())
    result.fits["held_out"][:] = -1
    assert result.to_frame().held_out.isna().all()
    assert result.to_frame().support.isna().all()


def test_without_pandas_the_frame_names_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(soopf.UserError, match=r"to_frame needs pandas.*pip install 'soopf_jax\[pandas\]'"):
        dealt().to_frame()


def test_arms_are_typed_and_have_the_numbers_of_the_document():
    result = dealt("learned", "factorial", "learned")
    assert list(result.arms) == ["learned (1)", "factorial", "learned (2)"]
    for arm, record in zip(result.arms.values(), result.document["arms"], strict=True):
        assert arm.inj.mean == pytest.approx(np.mean(record["inj"]["per_seed"]))
        assert arm.inj.sd == pytest.approx(np.std(record["inj"]["per_seed"]))
        assert arm.inj.interval == tuple(record["inj"]["ci95"])
        assert arm.inj.interval_method == record["inj"]["ci95_method"]
        assert arm.laundering_gap == pytest.approx(arm.non_injective.mean - arm.inj.mean)
        assert arm.min_cell == min(arm.inj.per_cell.values())
        assert set(arm.collapse) == {0.4, 0.5, 0.6}
    with pytest.raises(FrozenInstanceError):
        arm.inj.mean = 1.0
    (two,) = soopf.Result(*report_result.dealt_two_edits()).arms.values()
    assert two.inj.mean is None
    assert two.two_edits["joint"].mean == pytest.approx(np.mean(list(two.two_edits["joint"].per_cell.values())))


NASTY = '<script>alert("&")</script>'


def test_a_result_shows_itself_in_less_than_30_lines():
    result = dealt(*(f"{NASTY}{number}" for number in range(40)))
    result.document["warnings"] = [f"\x1b[31m{NASTY} {number}" for number in range(50)]
    lines = repr(result).splitlines()
    assert len(lines) < 30
    assert "\x1b" not in repr(result)
    assert sum(line.startswith(NASTY) for line in lines) == MOST_ARMS
    assert "... and 28 more arms" in lines
    shown = result._repr_html_()
    assert "<script" not in shown
    element = ElementTree.fromstring(shown)
    assert len(element.findall(".//tbody/tr")) == MOST_ARMS
    assert element.find(".//tbody/tr/td").text == f"{NASTY}0", "escaped, and not left out"


def test_a_short_result_shows_everything():
    result = dealt()
    title, header, *rest, after = repr(result).splitlines()
    rows, (chance, *notes) = rest[:2], rest[2:]
    assert notes == [f"hint: {hint}" for hint in result.hints]
    assert title.startswith("shapes3d-lite, pixels: 3 seeds")
    assert header.split()[:2] == ["assignment", "INJ"]
    assert [row.split()[:2] for row in rows] == [[n, f"{arm.inj.mean:.3f}"] for n, arm in result.arms.items()]
    assert chance.startswith("chance: INJ 0.111")
    assert ".to_frame()" in after


def test_on_a_terminal_the_table_fits(monkeypatch):
    monkeypatch.setattr("soopf_jax.report.tables.terminal_width", lambda: 60)
    _, header, first, second, left_out, *_ = repr(dealt()).splitlines()
    assert header.split()[:2] == ["assignment", "INJ"]
    assert max(map(len, (header, first, second))) <= 60
    assert left_out.endswith("; see .arms)")


def test_plots_are_matplotlib_figures_of_the_scores():
    result = dealt("factorial")
    arm = result.arms["factorial"]
    figure = result.plot.cells()
    assert isinstance(figure, Figure)
    above, below = figure.axes[:2]
    for axes, score in ((above, arm.inj), (below, arm.non_injective)):
        np.testing.assert_allclose(axes.collections[0].get_array().ravel(), list(score.per_cell.values()))
    assert figure._repr_png_().startswith(b"\x89PNG"), "a notebook shows it without pyplot"
    others = (result.plot.seeds(), result.plot.confusion(), result.plot.collapse(), result.plot.training())
    assert all(isinstance(other, Figure) for other in others)
    assert isinstance(soopf.Result(*report_result.dealt_two_edits()).plot.cells(), Figure)
    with pytest.raises(soopf.UserError, match="no data for the figure router_masks"):
        result.plot.masks()


# ------------------------------------------------------------------------------------------------- a model of torch


class Backbone(torch.nn.Module):
    """A class token and the 4 x 4 patches of an image, under dropout, which a frozen encoder must not apply."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed = torch.nn.Conv2d(3, 5, 8, 8)
        self.dropout = torch.nn.Dropout(0.5)

    def forward(self, images):
        patches = self.embed(images).flatten(2).transpose(1, 2)
        return self.dropout(torch.cat([patches.mean(axis=1, keepdim=True), patches], axis=1))


def half_size(image):
    return torch.from_numpy(np.asarray(image.resize((32, 32)), np.float32)).permute(2, 0, 1) / 255


def test_a_torch_model_gives_the_tokens_that_it_gives_by_hand():
    model = Backbone()
    images = np.random.default_rng(0).integers(0, 256, (5, 64, 64, 3), dtype=np.uint8)
    made = soopf.encoder(model, half_size, patch_tokens=slice(1, None), batch_size=2)
    weight, bias = (tensor.detach().numpy() for tensor in (model.embed.weight, model.embed.bias))
    small_images = np.stack([np.asarray(Image.fromarray(image).resize((32, 32)), np.float64) for image in images]) / 255
    patches = small_images.reshape(5, 4, 8, 4, 8, 3)
    by_hand = np.einsum("bruvwc,dcuw->brvd", patches, weight).reshape(5, 16, 5) + bias
    np.testing.assert_allclose(made.encode(images), by_hand, rtol=1e-4, atol=1e-5)
    prepare, forward = made.stages
    np.testing.assert_array_equal(forward(prepare(images[:2])), made.encode(images)[:2])
    assert made.window(64, 64) == soopf.Window(0.0, 0.0, 64.0, 64.0, 4, 4)
    assert made.identity["name"] == "Backbone"


def test_every_way_to_name_the_patches_gives_the_same_tokens():
    model, images = Backbone(), np.full((1, 64, 64, 3), 100, np.uint8)

    class Named(torch.nn.Module):
        def forward(self, inputs):
            return types.SimpleNamespace(last_hidden_state=model(inputs), other=None)

    expected = soopf.encoder(model, half_size, patch_tokens=slice(1, None)).encode(images)
    for wrapped, patches in (
        (model, lambda output: output[:, 1:]),
        (Named(), slice(1, None)),
        (Named(), lambda output: output.last_hidden_state[:, 1:]),
    ):
        np.testing.assert_array_equal(soopf.encoder(wrapped, half_size, patch_tokens=patches).encode(images), expected)
    batch_of_one = soopf.encoder(
        model, lambda image: {"pixel_values": half_size(image)[None]}, patch_tokens=slice(1, None)
    )
    np.testing.assert_array_equal(batch_of_one.encode(images), expected)


def test_what_changes_tokens_changes_the_identity():
    """Features are stored under the identity of their encoder."""
    other = Backbone()
    with torch.no_grad():
        other.embed.bias[0] += 1e-3
    made = [
        soopf.encoder(Backbone(), half_size, patch_tokens=slice(1, None)),
        soopf.encoder(other, half_size, patch_tokens=slice(1, None)),
        soopf.encoder(Backbone(), lambda image: 1 - half_size(image), patch_tokens=slice(1, None)),
        soopf.encoder(Backbone(), half_size, patch_tokens=slice(None, 16)),
    ]
    identities = [json.dumps(encoder.identity) for encoder in made]
    assert len(set(identities)) == len(identities)
    assert json.dumps(soopf.encoder(Backbone(), half_size, patch_tokens=slice(1, None)).identity) == identities[0]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: soopf.encoder(lambda images: images, half_size), "wraps a torch.nn.Module, not a function"),
        (lambda: soopf.encoder(Backbone(), half_size).window(64, 64), "17 tokens form no square; select the patches"),
        (lambda: soopf.encoder(torch.nn.Identity(), half_size), "patch_tokens= must give [images, patches, channels]"),
    ],
)
def test_a_model_that_cannot_be_used_is_one_line(make, says):
    with pytest.raises(soopf.UserError) as caught:
        make()
    assert says in str(caught.value)


def test_a_torch_model_goes_through_the_benchmark(cache):
    def as_tensor(image):
        return torch.from_numpy(np.asarray(image.resize((24, 24)), np.float32)).permute(2, 0, 1) / 255

    class Wide(Backbone):
        def forward(self, images):
            return torch.nn.functional.pad(super().forward(images), (0, 11))

    mine = soopf.encoder(Wide(), as_tensor, patch_tokens=slice(1, None), name="mine")
    result = soopf.benchmark(dataset=TINY[0], encoder=mine, cache_dir=cache, **SMALL_PROTOCOL)
    assert result.document["config"]["encoder"] == "mine"
    assert (result.document["provenance"]["patches"], result.document["provenance"]["channels"]) == (9, 16)


# -------------------------------------------------------------------------------------------------------- the package


def test_importing_the_package_imports_nothing_heavy():
    program = """
import json, sys
import soopf_jax as soopf
first = [name for name in json.loads(sys.argv[1]) if name in sys.modules]
callable_before = callable(soopf.features)
import soopf_jax.features.npz
print(json.dumps([first, callable_before, callable(soopf.features), soopf.QUICK.steps, "numpy" in dir(soopf)]))
"""
    heavy = json.dumps(["numpy", "pandas", "PIL", *HEAVY])
    done = subprocess.run([sys.executable, "-c", program, heavy], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [[], True, True, 500, False]


def test_every_public_name_exists_and_has_a_docstring():
    for name in soopf.__all__:
        value = getattr(soopf, name)
        assert value.__doc__, name
    with pytest.raises(AttributeError, match="has no attribute 'benchmrak'"):
        _ = soopf.benchmrak
