"""The panel `Reproduce and cite`: the command of a run and the BibTeX of the paper and of this software."""

from soopf_jax.experiments import options
from soopf_jax.report import html_page
from soopf_jax.report.subject import Subject
from soopf_jax.types import Json

PAPER = r"""
@misc{wang-support-operation,
  title  = {Support{$\times$}Operation Factorization: Compositional Readout of Frozen Vision Encoders
            under Controlled Interventions},
  author = {Wang, Zhongyao and Ouyang, Wanli and Cui, Taoyong and Heng, Pheng Ann},
  note   = {Preprint}
}
""".strip()
"""The paper, as in the README."""
SOFTWARE = """
@software{{soopf_jax,
  title   = {{soopf_jax: a benchmark of compositional readout from frozen vision encoders}},
  author  = {{{{the soopf_jax authors}}}},
  year    = {{2026}},
  version = {{{version}}},
  license = {{MIT}}
}}
""".strip()
"""This software. The authors and the year are those of the LICENSE file."""


def panel(subject: Subject) -> str:
    """The command, if the run was started from the command line, and the two entries."""
    document = subject.result.document
    line = command(document["config"])
    run = (
        f"<h3>The command of this run</h3>{html_page.copyable(line)}"
        '<p class="faint">Where the data lie (--data-root) and where results go (--out) are not recorded.</p>'
        if line
        else ""
    )
    return f"{run}<h3>BibTeX</h3>{html_page.copyable(bibtex(document))}"


def command(config: Json) -> str:
    """The command line that repeats a run; empty if the run was started from Python."""
    bench = options.from_record(config)
    return "" if bench is None else options.command(bench)


def bibtex(document: Json) -> str:
    """The paper and the version of this software that made the result."""
    version = document["provenance"]["environment"]["packages"]["soopf_jax"]
    return f"{PAPER}\n\n{SOFTWARE.format(version=version)}"
