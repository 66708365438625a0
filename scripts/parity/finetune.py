"""Trains SavedModels further, and calls those that Go has trained and saved back.

Without --read each model is made, loaded again, and trained for STEPS steps of
momentum towards a target; recorded are the data and the weights after that. With
--read DIR the models in DIR/<name> are run by Python's loaders.
"""

import contextlib
import io
import os
import sys

import savedmodels
import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.tools import saved_model_cli

from recording import Recording, arguments, progress

STEPS, RATE, MOMENTUM = 20, 0.02, 0.9
NAMES = ["keras_dense", "keras_cnn_with_batch_normalization", "keras_lstm", "keras_bidirectional_gru_of_any_length",
         "keras_transformer_block", "keras_embedding_of_integers", "keras_text_vectorization", "keras2_with_its_optimizer",
         "module_with_several_signatures", "v1_with_resource_variables"]


def trained(path, answer, output, target):
    loaded = tf.saved_model.load(path)  # which owns the variables
    f = loaded.signatures[answer["signature"]]
    xs = {k: tf.constant(v) for k, v in answer["inputs"].items()}
    variables = {v.name.split(":")[0]: v for v in f.variables if v.trainable and v.dtype.is_floating}
    speed = {k: tf.zeros_like(v) for k, v in variables.items()}
    losses = []
    for _ in range(STEPS):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((f(**xs)[output] - target) ** 2)
        losses.append(loss.numpy())
        for k, g in zip(variables, tape.gradient(loss, list(variables.values()))):
            speed[k] = MOMENTUM * speed[k] + tf.convert_to_tensor(g)
            variables[k].assign_sub(RATE * speed[k])
    return np.float32(losses), {k: v.numpy() for k, v in variables.items()}


def make(args, rec):
    for i, name in enumerate(NAMES):
        if not args.run.search(name):
            continue
        progress(i, len(NAMES), name)
        keras.utils.set_random_seed(i)
        path = os.path.join(os.path.abspath(args.out), name, "1")
        os.makedirs(os.path.dirname(path))
        answer = getattr(savedmodels, name)(path)[0]
        output = sorted(k for k, v in answer["outputs"].items() if v.dtype == np.float32)[-1]
        target = savedmodels.floats(*answer["outputs"][output].shape, seed=99)
        losses, weights = trained(path, answer, output, target)
        np.savez(os.path.join(os.path.dirname(path), "inputs.npz"),
                 **{k: v.astype("S") if v.dtype == object else v for k, v in answer["inputs"].items()})
        rec.cases.append({"name": name, "signature": answer["signature"], "output": output, "steps": STEPS, "rate": RATE, "momentum": MOMENTUM,
                          "inputs": {k: rec.array(v) for k, v in answer["inputs"].items()}, "target": rec.array(target),
                          "losses": rec.array(losses), "weights": {k: rec.array(v) for k, v in weights.items()}})
    rec.save({"cases": rec.cases})


def shell(path, signature, inputs, folder):
    """What saved_model_cli run answers, in this process."""
    text = ["saved_model_cli", "run", "--dir", path, "--tag_set", "serve", "--signature_def", signature, "--outdir", folder, "--overwrite", "--inputs",
            ";".join("%s=%s[%s]" % (k, os.path.join(folder, "inputs.npz"), k) for k in inputs)]
    before, sys.argv = sys.argv, text
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            saved_model_cli.main()
    except SystemExit as end:  # which main always ends with
        if end.code:
            raise RuntimeError("saved_model_cli: %s" % end.code) from end
    finally:
        sys.argv = before


def read(args, rec):
    for i, name in enumerate(sorted(os.listdir(args.read))):
        progress(i, len(NAMES), name)
        path = os.path.join(args.read, name)
        folder = os.path.join(args.out, name)
        with np.load(os.path.join(folder, "inputs.npz")) as found:
            inputs = {k: found[k].astype(object) if found[k].dtype.kind == "S" else found[k] for k in found.files}
        loaded = tf.saved_model.load(path)
        signatures = loaded.signatures
        signature = "serving_default" if "serving_default" in signatures else sorted(signatures)[-1]
        xs = {k: tf.constant(v) for k, v in inputs.items()}
        outputs = {"load": signatures[signature](**xs)}
        if not name.startswith("v1"):
            layer = keras.layers.TFSMLayer(path, call_endpoint=signature)
            got = layer(next(iter(xs.values())))
            outputs["TFSMLayer"] = got if isinstance(got, dict) else dict(zip(outputs["load"], [got]))
        shell(path, signature, inputs, folder)
        outputs["saved_model_cli"] = {k: np.load(os.path.join(folder, k + ".npy")) for k in outputs["load"]}
        rec.cases.append({"name": name, "signature": signature,
                          "by": {how: {k: rec.array(np.asarray(v)) for k, v in out.items()} for how, out in outputs.items()}})
    rec.save({"cases": rec.cases})


def main():
    args = arguments(lambda parser: parser.add_argument("--read"))
    rec = Recording(args.out)
    (read if args.read else make)(args, rec)


if __name__ == "__main__":
    main()
