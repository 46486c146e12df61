"""Open the features of a run. Names are checked and keys are known before anything is rendered or encoded."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from soopf_jax import plugins
from soopf_jax.errors import UserError
from soopf_jax.experiments.options import Bench, record
from soopf_jax.features import store
from soopf_jax.features.given import load_features
from soopf_jax.features.table import recipe
from soopf_jax.features.table import table as table_of
from soopf_jax.fitting.protocol import check_cells
from soopf_jax.runtime.hashing import digest
from soopf_jax.runtime.progress import ProgressBar
from soopf_jax.types import Encoder, EncoderRequest, FeatureTable, Substrate, SubstrateRequest


class Given(NamedTuple):
    """Parts of a run that a caller in Python gives as values. Each takes the place of the option of its name."""

    table: FeatureTable | None = None
    """Features, instead of a data set and an encoder."""
    dataset: Callable[[SubstrateRequest], Substrate] | None = None
    encoder: Callable[[EncoderRequest], Encoder] | None = None
    names: Mapping[str, str] = {}
    """Under which names they are recorded: `dataset`, `encoder`."""


class Inputs(NamedTuple):
    """Where the features come from, opened but not yet computed."""

    key: str
    """Hash of all that decides the features."""
    load: Callable[[ProgressBar | None], FeatureTable]
    """Reads or computes the features, and shows its progress if it is given a bar."""
    substrate: Substrate | None = None
    encoder: Encoder | None = None
    """None where the tokens were made elsewhere."""
    name: str | None = None
    """What a configuration calls tokens that were made elsewhere, as `name_of` has it."""


def substrate_request(bench: Bench) -> SubstrateRequest:
    """What a run asks of its data set."""
    return SubstrateRequest(
        bench.dataset_name,
        bench.operations or None,
        bench.pairs_per_cell or None,
        bench.data_seed,
        bench.data_root or None,
        stripe_unit=bench.stripe_unit,
        stripe_size=bench.stripe_size or None,
    )


def open_inputs(bench: Bench, test_edits: int | None = None, given: Given | None = None) -> list[Inputs]:
    """The features to train on and, if `test_edits` is given, those of test pairs with this number of edits.

    Raises:
        UserError: A name is unknown, or the data set or the encoder cannot be opened.
    """
    given = given or Given()
    if given.table is not None or bench.features:
        table = given.table or load_features(str(bench.features), bench.pairs_per_cell or None, bench.cache_dir or None)
        check_cells(table.cell, table.grid)
        stored = given.table is None and table.provenance["kind"] == "store"
        key = table.provenance["key"] if stored else digest(table.provenance)
        return [Inputs(key, lambda progress: table, name=name_of(table))]
    open_substrate = given.dataset or plugins.resolve("dataset", plugins.SUBSTRATES, bench.dataset_name)
    open_encoder = given.encoder or plugins.resolve("encoder", plugins.ENCODERS, bench.encoder_name)
    request = substrate_request(bench)
    tests = [open_substrate(request._replace(pairs_per_cell=None, edits=test_edits))] if test_edits else []
    if any(test.identity.get("edits") != test_edits for test in tests):
        name = given.names.get("dataset", bench.dataset_name)
        raise UserError(f"dataset {name} has no pairs with two edits; leave --edits out")
    single = open_substrate(request)
    check_cells(single.cell, single.grid)
    encoder = open_encoder(EncoderRequest(bench.encoder_name, bench.layer))
    return [encoded(substrate, encoder, bench) for substrate in (single, *tests)]


def encoded(substrate: Substrate, encoder: Encoder, bench: Bench) -> Inputs:
    """The features of a data set under an encoder, from the cache or computed when they are loaded."""

    def load(progress: ProgressBar | None) -> FeatureTable:
        return table_of(substrate, encoder, bench.dtype, bench.cache_dir or None, progress)

    return Inputs(recipe(substrate, encoder, bench.dtype)["key"], load, substrate, encoder)


def recorded(bench: Bench, inputs: Sequence[Inputs]) -> dict[str, Any]:
    """What a result records of the options and of the features."""
    named = bench if inputs[0].name is None else replace(bench, features=inputs[0].name)
    return record(named, [opened.key for opened in inputs])


def name_of(table: FeatureTable) -> str:
    """What the features of a run are called in its configuration: a store, a file, or what kind of table they are."""
    origin = table.provenance
    if origin.get("kind") == "store":
        return store.store_folder(origin, None).name
    return str(origin.get("file") or origin.get("kind") or "table")
