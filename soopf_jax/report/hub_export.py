"""Results as the Hugging Face hub keeps them: the files of model repositories and of the benchmark's own repository.

In: the arms of a leaderboard. Out: files, the commands that upload them, and why arms are left out. Nothing is uploaded
here. The hub has two forms. In the first, `.eval_results/*.yaml` in the repository of a model names tasks, which
`eval.yaml` in the dataset repository of the benchmark lists. In the older one, `model-index` in the metadata of a
model's README holds everything.
"""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from soopf_jax.errors import UserError
from soopf_jax.experiments.naming import protocol_of, without_folder
from soopf_jax.plugins import load, require
from soopf_jax.report.leaderboard_table import RankedArm
from soopf_jax.runtime.hashing import digest, slug
from soopf_jax.runtime.text import count, interval, number, printable
from soopf_jax.types import Json

FRAMEWORK = "soopf_jax"
STAND_INS = {"shapes3d-lite": "shapes3d-lite is a stand-in for Shapes3D, drawn by soopf_jax"}
"""Data sets that are not the paper's, and what a reader of a score must know."""
DESCRIPTION = (
    "Do frozen vision encoders bind what changed to where it changed? A readout of a frozen encoder is trained on pairs"
    " of images that differ by one edit, with one combination of support and operation held out. The value is INJ, the"
    " share of held-out pairs that are read as the right combination when every support and every operation claims a"
    " slot of its own, from 0 to 1."
)
MERGE = (
    "from huggingface_hub import ModelCard, metadata_update; "
    "metadata_update({hub_id!r}, ModelCard.load({path!r}).data.to_dict(), create_pr=True)"
)
"""A program that adds the metadata of a file to the README on the hub. To upload the file would replace the README."""


class Export(NamedTuple):
    """What is written, and what is said about it."""

    files: Mapping[str, bytes]
    """Contents by path in the folder of the export."""
    commands: Sequence[str]
    """The command that uploads the files of each repository."""
    left_out: Sequence[str]
    """Each arm that has no place on the hub, with the reason."""


class Entry(NamedTuple):
    """An arm that has a place on the hub."""

    hub_id: str
    """The repository of the model."""
    task: str
    """What is ranked: arms of one task may be compared."""
    ranked: RankedArm


# --------------------------------------------------------------------------------------------- what is exported


def as_eval_results(arms: Sequence[RankedArm], folder: str, benchmark: str) -> Export:
    """The files of both kinds of repository in the form of today.

    Args:
        arms: The arms of a leaderboard.
        folder: Where the files will lie, for the commands.
        benchmark: The dataset repository of the benchmark on the hub, `owner/name`.

    Raises:
        UserError: huggingface_hub is missing or too old, the name of the repository is none, or no arm can be exported.
    """
    hub, (entries, left_out) = _hub("EvalResultEntry"), _entries(arms)
    _check_repository(benchmark)
    by_file: dict[tuple[str, str], list[Any]] = {}
    for hub_id, task, ranked in entries:
        entry = hub.EvalResultEntry(benchmark, task, ranked.arm["inj"]["mean"], notes=notes(ranked))
        by_file.setdefault((hub_id, f"{slug(f'soopf {ranked.name.encoder}')}.yaml"), []).append(entry)
    files = {
        f"models/{hub_id}/.eval_results/{file}": _yaml(hub.eval_result_entries_to_yaml(found))
        for (hub_id, file), found in by_file.items()
    }
    files["benchmark/eval.yaml"] = _yaml(_benchmark(entries))
    commands = [shlex.join(["hf", "upload", benchmark, f"{folder}/benchmark", ".", "--repo-type", "dataset"])]
    commands += [
        shlex.join(["hf", "upload", hub_id, f"{folder}/models/{hub_id}/.eval_results", ".eval_results", "--create-pr"])
        for hub_id in dict.fromkeys(entry.hub_id for entry in entries)
    ]
    return Export(files, commands, left_out)


def as_model_index(arms: Sequence[RankedArm], folder: str, benchmark: str) -> Export:
    """The metadata of model repositories in the older form. Without a benchmark, the data set stands by its own name.

    The arguments are those of `as_eval_results`.
    """
    hub, (entries, left_out) = _hub("ModelCardData"), _entries(arms)
    if benchmark:
        _check_repository(benchmark)
    by_model: dict[str, list[Any]] = {}
    for hub_id, task, ranked in entries:
        inj, substrate = ranked.arm["inj"], without_folder(ranked.name.substrate)
        result = hub.EvalResult(
            task_type="image-feature-extraction",
            dataset_type=benchmark or slug(substrate),
            dataset_name=f"soopf_jax on {substrate}",
            dataset_config=task,
            metric_type="accuracy",
            metric_name=f"INJ of {ranked.name.encoder}",
            metric_value=inj["mean"],
            metric_args={"ci95": inj["ci95"], "notes": notes(ranked)},
        )
        by_model.setdefault(hub_id, []).append(result)
    files, commands = {}, []
    for hub_id, found in by_model.items():
        path = f"models/{hub_id}/README.md"
        card = hub.ModelCardData(model_name=hub_id.rpartition("/")[2], eval_results=found)
        files[path] = f"---\n{card.to_yaml()}\n---\n".encode()
        commands.append(shlex.join(["python", "-c", MERGE.format(hub_id=hub_id, path=f"{folder}/{path}")]))
    return Export(files, commands, left_out)


FORMS = {"hub": as_eval_results, "model-index": as_model_index}
"""By the value of --export."""


# ---------------------------------------------------------------------------------------------- where it belongs


def _entries(arms: Sequence[RankedArm]) -> tuple[list[Entry], list[str]]:
    """The arms that have a place on the hub, and why the others have none.

    Of several results of one encoder and task, the first by the names of folders counts, whatever it scores.
    """
    entries: dict[tuple[str, ...], Entry] = {}
    left_out = []
    for ranked in sorted(arms, key=lambda ranked: ranked.folder):
        hub_id, reason = _repository(ranked)
        task = task_of(ranked)
        place = (hub_id, task, *_reading(ranked))
        if not reason and place in entries:
            reason = f"{entries[place].ranked.folder} has the same encoder and task"
        if reason:
            left_out.append(f"{ranked.folder} {printable(ranked.arm['assignment'])}: {reason}")
        else:
            entries[place] = Entry(hub_id, task, ranked)
    if not entries:
        said = "; ".join(dict.fromkeys(reason.partition(": ")[2] for reason in left_out))
        raise UserError(
            f"nothing to export ({said}); run an encoder that has a repository on the hub, such as dinov2-s"
        )
    return list(entries.values()), left_out


def _repository(ranked: RankedArm) -> tuple[str, str]:
    """The model repository that a score belongs to, or why there is none."""
    encoder = _encoder(ranked)
    if not encoder:
        return "", "its tokens were made elsewhere, so no model repository is known"
    name = without_folder(ranked.name.encoder)
    hub_id = encoder.get("hub_id")
    if not hub_id:
        return "", f"no repository on the hub is known for the encoder {name}"
    if not _is_repository(hub_id):
        return "", f"'{printable(str(hub_id))}' is not the name of a repository on the hub"
    if isinstance(encoder.get("weights"), Mapping) and "random_seed" in encoder["weights"]:
        return "", f"the encoder {name} has untrained weights, not those of {hub_id}"
    if ranked.arm["inj"]["mean"] is None:
        return "", "its INJ is undefined"
    return str(hub_id), ""


def _encoder(ranked: RankedArm) -> Json:
    """The identity of the encoder; empty if the tokens were made elsewhere."""
    found: Any = ranked.document["provenance"]
    for name in ("features", "inputs", "encoder"):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _reading(ranked: RankedArm) -> tuple[str, ...]:
    """What decides the tokens of a model, apart from its weights. Names of one encoder agree in it."""
    encoder = _encoder(ranked)
    decisive = [encoder.get(name) for name in ("preprocessing", "layer", "final_norm", "rope_periods")]
    return digest(decisive), str(ranked.document["config"].get("dtype"))


def task_of(ranked: RankedArm) -> str:
    """The name of what is ranked: data, pairs, readout, assignment and protocol. Only arms of one task compare."""
    name = ranked.name
    substrate, grid = without_folder(name.substrate), name.grid.replace(" ", "")
    how = (name.readout, name.objective, ranked.arm["assignment"], name.protocol)
    return slug(" ".join([substrate, grid, name.pairs, "pairs", *how]))


def notes(ranked: RankedArm) -> str:
    """What a reader of a score must know, in one paragraph."""
    document, arm, name = ranked.document, ranked.arm, ranked.name
    protocol, inj = protocol_of(document), arm["inj"]
    encoder, asked = _encoder(ranked), document["config"].get("layer")
    layer = "output after the final norm" if asked is None else f"layer {encoder.get('layer', asked)}"
    version = document["provenance"].get("environment", {}).get("packages", {}).get("soopf_jax", "of unknown version")
    sizes = (count(len(inj["per_seed"]), "seed"), count(protocol["restarts"], "restart"), f"{protocol['steps']} steps")
    made_how = f" ({inj['ci95_method']})" if inj.get("ci95_method") else ""
    chance = "" if ranked.chance is None else f", chance {number(ranked.chance)}"
    failed = f"{arm['failed_fits']} of {arm['n_fits']} fits failed" if arm["failed_fits"] else ""
    said = [
        f"INJ {number(inj['mean'])}, 95% interval over seeds {interval(inj['ci95'])}{made_how}{chance}",
        f"many-to-one accuracy {number(arm['non_injective']['mean'])}",
        f"protocol {name.protocol} ({', '.join(sizes)})",
        f"readout {name.readout}, assignment {arm['assignment']}, objective {name.objective}",
        f"encoder {name.encoder}, {layer}, weights at revision {encoder.get('revision') or 'unknown'}",
        f"data {without_folder(name.substrate)}, {name.grid} cells, {name.pairs} pairs",
        failed,
        STAND_INS.get(name.substrate.partition(" ")[0], ""),
        f"soopf_jax {version}",
    ]
    return printable("; ".join(filter(None, said)))


def _benchmark(entries: Sequence[Entry]) -> Json:
    """The content of eval.yaml: every task that the exported results name."""
    tasks = {entry.task: slug(without_folder(entry.ranked.name.substrate)) for entry in entries}
    return {
        "name": "Support x operation binding of frozen vision encoders",
        "description": DESCRIPTION,
        "evaluation_framework": FRAMEWORK,
        "tasks": [{"id": task, "config": config, "split": "test"} for task, config in sorted(tasks.items())],
    }


# -------------------------------------------------------------------------------------------------- the library


def _hub(needed: str) -> Any:
    """huggingface_hub.

    Raises:
        UserError: It is not installed, or too old to have what is needed.
    """
    require("--export", "huggingface_hub")
    import huggingface_hub

    if not hasattr(huggingface_hub, needed):
        raise UserError(
            f"--export needs a newer huggingface_hub than {huggingface_hub.__version__}; pip install -U huggingface_hub"
        )
    return huggingface_hub


def _is_repository(name: Any) -> bool:
    """Whether `name` can be the name of a repository on the hub, which is a safe path as well."""
    from huggingface_hub.errors import HFValidationError

    try:
        load("huggingface_hub.utils:validate_repo_id")(name)
    except HFValidationError:
        return False
    return "/" in name


def _check_repository(name: str) -> None:
    """A UserError unless `name` can be the name of a repository on the hub."""
    if not _is_repository(name):
        raise UserError(f"--benchmark takes the OWNER/NAME of a repository on the hub, not '{name}'; correct it")


def _yaml(value: Any) -> bytes:
    return load("huggingface_hub.utils:yaml_dump")(value, sort_keys=False, width=1000).encode()
