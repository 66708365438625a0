"""Records every gradient case of cases_*.py."""

import traceback

from graphcases import CASES, record, variations
from recording import Recording, arguments, progress

import cases_array  # noqa: F401
import cases_control  # noqa: F401
import cases_linalg  # noqa: F401
import cases_lists  # noqa: F401
import cases_math  # noqa: F401
import cases_nn  # noqa: F401
import cases_variants  # noqa: F401


def main():
    args = arguments()
    rec = Recording(args.out)
    todo = [(c, *v) for c in CASES for v in variations(c) if args.run.search(v[0])]
    names = set()
    errors = []
    for done, (c, name, dtype, unknown) in enumerate(todo):
        progress(done, len(todo), name)
        if name in names:
            errors.append({"name": name, "op": c["op"], "error": "two cases of this name"})
            continue
        names.add(name)
        try:
            record(rec, c, name, dtype, unknown)
        except Exception as e:
            last = traceback.extract_tb(e.__traceback__)[-1]
            errors.append({"name": name, "op": c["op"],
                           "error": "Python: %s: %s (%s:%d)" % (type(e).__name__, str(e)[:300], last.filename.rsplit("/", 1)[-1], last.lineno)})
    rec.save({"cases": rec.cases, "errors": errors})


if __name__ == "__main__":
    main()
