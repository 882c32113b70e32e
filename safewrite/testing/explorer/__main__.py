"""Explores every interleaving of some writers, with every fault at every step up to a budget.

Breadth first, so that a violation comes with a shortest trace.  A state is the stores, the requests
still under way, the faults left and each process's local state; the invariants below hold in every
one of them.  Effects that nobody else can notice (a temp file of a name that only we know, a read of
what never changes) are not interleaved: they commute with everything others do.

Invariants, by the number of the promise (docs/promise.md):

- *doubled* (1, 3): a key of safewrite is in at most one commit file, or snapshot of an Iceberg branch;
- *lost* (1): an acked key is in the version that the ack names, and no row is gone that nobody deleted;
- *zombie* (2): an attempt that ended in ``NotCommittedError`` is in no commit file, ever;
- *revived* (1): what a change makes of its key is made on the version before its own, and no deleted row of a data file is back;
- *misled* (2): a key that ``resolve`` did not find, once its writer had ended, is in no commit file, ever;
- *hole*: versions are contiguous from 0;
- *replaced*: a commit file never changes (except where a peer in the model replaces them);
- *alarm*: no error that accuses others, or safewrite itself, without cause;
- *unreadable*: nothing that a version names was deleted;
- *stuck*: from wherever all processes have ended, started again they decide their writes, and a new
  writer commits.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from safewrite.testing.explorer import models
from safewrite.testing.explorer.catalog_models import CATALOG_MODELS, CatalogModel
from safewrite.testing.explorer.delta_models import Model
from safewrite.testing.explorer.search import Explorer, Report

MODELS: dict[str, Model | CatalogModel] = {**models.MODELS, **CATALOG_MODELS}
"""All models, of Delta and of Iceberg."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Explore models and print a table; 1 if anything but a known flaw was found, or a known one was not."""
    parser = argparse.ArgumentParser(prog="python -m safewrite.testing.explorer", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--model", action="append", choices=MODELS, help="only this model (may be repeated)")
    parser.add_argument("--faults", type=int, help="faults in one execution (default: as the model says)")
    parser.add_argument(
        "--states", type=int, default=0, help="stop after so many states of a model (0: never)"
    )
    parser.add_argument("--long", action="store_true", help="the models' larger budgets of faults")
    parser.add_argument("--seed", type=int, help="order of the search, for runs that --states cuts short")
    parser.add_argument("--list", action="store_true", help="list the models")
    chosen = parser.parse_args(arguments)
    if chosen.list:
        for model in MODELS.values():
            _say(f"{model.name:<16} {model.about} (faults: {model.faults}; --long: {model.long_faults})")
        return 0
    _say(
        f"{'model':<16}{'faults':>7}{'states':>12}{'transitions':>13}{'ends':>9}{'violations':>12}{'seconds':>9}"
    )
    as_told = True
    for name in chosen.model or MODELS:
        model = MODELS[name]
        default = model.long_faults if chosen.long else model.faults
        faults = default if chosen.faults is None else chosen.faults
        report = Explorer(model, faults, seed=chosen.seed).explore(chosen.states)
        told = report.violation.partition(":")[0] in (model.flaw or ("",))
        as_told = as_told and (told or not report.whole)
        _say(_row(report, known=told and bool(model.flaw)))
        if report.violation and not told:
            trace = (f"  {number:>3} {step}" for number, step in enumerate(report.trace, 1))
            _say("\n".join([f"  {report.violation}", *trace]))
    return int(not as_told)


def _row(report: Report, *, known: bool) -> str:
    note = "  (cut short)" if not report.whole else "  (known)" if known else ""
    return (
        f"{report.model:<16}{report.faults:>7}{report.states:>12,}{report.transitions:>13,}{report.ends:>9,}"
        f"{int(bool(report.violation)):>12}{report.seconds:>9.1f}{note}"
    )


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
