"""Random sequences of operations and name scopes, and the names that Python gives them, for names.go."""

import random

import tensorflow as tf

from recording import Recording, arguments

NAMES = ["foo", "Foo", "foo_1", "foo_1_1", "FOO_2", "bar", "bar_1", "a.b", "foo/bar", "foo/foo_1", "0x", "B>c-d\\e"]
STEPS = 60


def sequence(seed):
    rng = random.Random(seed)
    steps = []
    with tf.Graph().as_default():
        scopes = []  # open context managers
        for _ in range(STEPS):
            kind = rng.choice(["op", "op", "op", "scope", "end"])
            name = rng.choice(NAMES)
            if kind == "op":
                steps.append([kind, name, tf.no_op(name=name).name])
            elif kind == "scope" and len(scopes) < 4:
                scope = tf.name_scope(name)
                path = scope.__enter__()
                scopes.append(scope)
                steps.append([kind, name, path.rstrip("/")])
            elif kind == "end" and scopes:
                scopes.pop().__exit__(None, None, None)
                steps.append([kind, "", ""])
        while scopes:
            scopes.pop().__exit__(None, None, None)
    return steps


def main():
    args = arguments()
    rec = Recording(args.out)
    for seed in range(40):
        rec.cases.append({"name": "seed %d" % seed, "steps": sequence(seed)})
    rec.save()


if __name__ == "__main__":
    main()
