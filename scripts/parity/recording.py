"""What a parity module hands to Go: a document, arrays and files.

    rec = Recording(args.out)
    rec.cases.append({"name": "x", "w": rec.array(w)})
    rec.save()

writes cases.json and arrays.npz; Go's Recording reads both.
"""

import argparse
import json
import os
import re

import numpy as np


class Recording:
    def __init__(self, out):
        self.out = out
        self.cases = []
        self._arrays = {}

    def array(self, value):
        """Stores an array; returns its description for the document."""
        value = np.asarray(value)
        shape = list(value.shape)
        if value.dtype.kind in "OSU":
            texts = [v if isinstance(v, bytes) else str(v).encode() for v in value.reshape(-1).tolist()]
            return {"dtype": "string", "shape": shape, "strings": [t.decode("latin-1") for t in texts]}
        key = "a%d" % len(self._arrays)
        dtype = value.dtype.name
        if value.dtype.kind == "V" or dtype not in np.sctypeDict:  # bfloat16 and the like: bits
            value = value.view({1: np.uint8, 2: np.uint16}[value.dtype.itemsize])
        self._arrays[key] = np.ascontiguousarray(value).reshape(-1)
        return {"key": key, "dtype": dtype, "shape": shape}

    def file(self, name, data):
        """Writes a file beside the document; returns its name."""
        with open(os.path.join(self.out, name), "wb") as f:
            f.write(data)
        return name

    def save(self, document=None):
        np.savez(os.path.join(self.out, "arrays.npz"), **self._arrays)
        with open(os.path.join(self.out, "cases.json"), "w") as f:
            json.dump(self.cases if document is None else document, f, allow_nan=False)


def arguments(more=lambda parser: None):
    """--out DIR and --run REGEXP, as the harness passes them, and what more adds to the parser."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--run", type=re.compile, default=re.compile(""))
    more(parser)
    return parser.parse_args()


def progress(done, total, what):
    print("@ %d %d %s" % (done, total, what or "-"), flush=True)
