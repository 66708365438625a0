"""Makes SavedModels of all kinds, and records what they give for some inputs.

Each function with @model writes a model into the folder that it is given, and
returns for each signature to be compared its inputs and outputs by name, as
Python's own loader and runtime have them.
"""

import os

os.environ.setdefault("TF_USE_LEGACY_KERAS", "0")

import keras
import numpy as np
import tensorflow as tf

from recording import Recording, arguments, progress

v1 = tf.compat.v1
tf.get_logger().setLevel("ERROR")
MODELS = []


def model(f):
    MODELS.append(f)
    return f


def floats(*shape, seed=0):
    return np.random.default_rng(seed + len(shape)).standard_normal(shape).astype(np.float32)


def answers(path, signature, tags=None, **inputs):
    """What Python's loader gives for the signature: the expectation."""
    loaded = tf.saved_model.load(path, tags=tags)
    f = loaded.signatures[signature]
    xs = {k: tf.constant(v) for k, v in inputs.items()}
    with tf.GradientTape() as tape:
        for x in xs.values():
            if x.dtype.is_floating:
                tape.watch(x)
        out = f(**xs)
    result = {"signature": signature, "inputs": inputs, "outputs": {k: v.numpy() for k, v in out.items()}}
    ys = {k: v for k, v in out.items() if v.dtype.is_floating and v.shape.num_elements()}
    by = {**{("inputs", k): x for k, x in xs.items() if x.dtype.is_floating},
          **{("variables", v.name.split(":")[0]): v for v in f.variables if v.dtype.is_floating and v.trainable}}
    if not ys or not by:
        return result
    # Gradients of the outputs, each element weighted at random, by inputs and variables.
    weights = {k: tf.cast(floats(*y.shape, seed=7), y.dtype) for k, y in ys.items()}
    grads = tape.gradient(list(ys.values()), list(by.values()), output_gradients=list(weights.values()))
    result["weights"] = {k: w.numpy() for k, w in weights.items()}
    result["gradients"] = {"inputs": {}, "variables": {}}
    for (kind, name), g in zip(by, grads):
        result["gradients"][kind][name] = None if g is None else tf.convert_to_tensor(g).numpy()
    return result


def exported(path, m, *xs):
    """Exports a Keras model and records serving_default for the inputs."""
    m.export(path, verbose=False)
    names = list(tf.saved_model.load(path).signatures["serving_default"].structured_input_signature[1])
    return [answers(path, "serving_default", **dict(zip(names, xs)))]


@model
def keras_dense(path):
    m = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(3)])
    return exported(path, m, floats(5, 4))


@model
def keras_cnn_with_batch_normalization(path):
    m = keras.Sequential([keras.Input((9, 9, 2)), keras.layers.Conv2D(3, 3), keras.layers.BatchNormalization(),
                          keras.layers.ReLU(), keras.layers.MaxPooling2D(), keras.layers.Flatten(), keras.layers.Dropout(.5), keras.layers.Dense(4, "softmax")])
    m.layers[1].set_weights([np.float32([1.5, 1, .5]), np.float32([.1, 0, -.1]), np.float32([.2, .1, 0]), np.float32([1.2, .8, 1])])
    return exported(path, m, floats(2, 9, 9, 2))


@model
def keras_lstm(path):
    m = keras.Sequential([keras.Input((7, 3)), keras.layers.LSTM(5, return_sequences=True), keras.layers.LSTM(4), keras.layers.Dense(1)])
    return exported(path, m, floats(3, 7, 3))


@model
def keras_bidirectional_gru_of_any_length(path):
    m = keras.Sequential([keras.Input((None, 3)), keras.layers.Bidirectional(keras.layers.GRU(4)), keras.layers.Dense(2)])
    return exported(path, m, floats(2, 6, 3))


@model
def keras_transformer_block(path):
    x = inputs = keras.Input((6, 8))
    a = keras.layers.MultiHeadAttention(2, 4)(x, x)
    x = keras.layers.LayerNormalization()(x + a)
    x = keras.layers.LayerNormalization()(x + keras.layers.Dense(8)(keras.layers.Dense(16, "gelu")(x)))
    return exported(path, keras.Model(inputs, keras.layers.GlobalAveragePooling1D()(x)), floats(3, 6, 8))


@model
def keras_two_inputs_two_outputs(path):
    a, b = keras.Input((3,), name="left"), keras.Input((2,), name="right")
    x = keras.layers.Concatenate()([a, b])
    m = keras.Model([a, b], {"sum": keras.layers.Dense(1, name="s")(x), "scores": keras.layers.Dense(4, "softmax", name="c")(x)})
    archive = keras.export.ExportArchive()
    archive.track(m)
    archive.add_endpoint("serve", lambda left, right: m([left, right], training=False),
                         [tf.TensorSpec((None, 3), tf.float32, "left"), tf.TensorSpec((None, 2), tf.float32, "right")])
    archive.write_out(path, verbose=False)
    return [answers(path, "serve", left=floats(2, 3), right=floats(2, 2))]


@model
def keras_archive_with_several_endpoints(path):
    m = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dropout(.5), keras.layers.Dense(2)])
    archive = keras.export.ExportArchive()
    archive.track(m)
    spec = [tf.TensorSpec((None, 4), tf.float32, "x")]
    archive.add_endpoint("call", lambda x: m(x, training=False), spec)
    archive.add_endpoint("first", lambda x: {"hidden": m.layers[0](x)}, spec)
    archive.write_out(path, verbose=False)
    x = floats(3, 4)
    return [answers(path, "call", x=x), answers(path, "first", x=x)]


@model
def keras_embedding_of_integers(path):
    m = keras.Sequential([keras.Input((5,), dtype="int32"), keras.layers.Embedding(11, 4), keras.layers.GlobalMaxPooling1D(), keras.layers.Dense(2)])
    return exported(path, m, np.int32([[1, 2, 3, 10, 0], [5, 5, 5, 5, 5]]))


@model
def keras_text_vectorization(path):
    layer = keras.layers.TextVectorization(max_tokens=20, output_sequence_length=4)
    layer.adapt(["the cat sat", "the dog sat down"])
    m = keras.Sequential([keras.Input((1,), dtype="string"), layer, keras.layers.Embedding(20, 3), keras.layers.Flatten(), keras.layers.Dense(1)])
    return exported(path, m, np.array([[b"the cat"], [b"a bird sat down there"]]))


@model
def keras_conv3d_in_half(path):
    m = keras.Sequential([keras.Input((4, 4, 4, 1), dtype="float16"), keras.layers.Conv3D(2, 2, dtype="float16"), keras.layers.Flatten(dtype="float16")])
    return exported(path, m, floats(2, 4, 4, 4, 1).astype(np.float16))


@model
def keras2_with_its_optimizer(path):
    # Keras 2 as TensorFlow still carries it within, saved as compiled, with the optimizer's slots.
    import tensorflow.python.keras as keras2
    keras2.__version__ = tf.__version__  # which it has lost, and writes into the file
    from tensorflow.python.keras import Sequential, layers
    m = Sequential([layers.Dense(4, activation="relu", input_shape=(3,)), layers.Dropout(.5), layers.Dense(2)])
    m.compile("adam", "mse")
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((m(floats(8, 3), training=True) - floats(8, 2)) ** 2)
    m.optimizer.apply_gradients(zip(tape.gradient(loss, m.trainable_variables), m.trainable_variables))
    m.save(path, save_format="tf")
    x = floats(5, 3, seed=1)
    loaded = tf.saved_model.load(path)
    name = next(iter(loaded.signatures["serving_default"].structured_input_signature[1]))
    return [answers(path, "serving_default", **{name: x})]


@model
def module_with_ragged_and_sparse_signatures(path):
    class M(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec((None,), tf.string, "text")])
        def words(self, text):
            return {"words": tf.strings.split(text)}

        @tf.function(input_signature=[tf.RaggedTensorSpec((None, None), tf.float32)])
        def total(self, x):
            return {"sum": tf.reduce_sum(x, 1)}

        @tf.function(input_signature=[tf.SparseTensorSpec((None, 3), tf.float32)])
        def dense(self, x):
            return {"dense": tf.sparse.to_dense(x)}

    m = M()
    tf.saved_model.save(m, path, signatures={"words": m.words, "total": m.total, "dense": m.dense})
    text = np.array([b"one two", b"", b"three"])
    split = tf.strings.split(text)
    return [{"signature": "words", "inputs": {"text": text}, "outputs": {"words/flat_values": split.flat_values.numpy(), "words/row_splits_0": split.row_splits.numpy()}},
            {"signature": "total", "inputs": {"x": np.float32([1, 2, 4]), "x_1": np.int64([0, 2, 2, 3])}, "outputs": {"sum": np.float32([3, 0, 4])}},
            {"signature": "dense", "inputs": {"x": np.int64([[0, 1], [1, 2]]), "x_1": np.float32([5, 7]), "x_2": np.int64([2, 3])},
             "outputs": {"dense": np.float32([[0, 5, 0], [0, 0, 7]])}}]


@model
def module_with_several_signatures(path):
    class M(tf.Module):
        def __init__(self):
            self.w = tf.Variable([[1., 2.], [3., 4.]], name="w")
            self.frozen = tf.Variable(7., trainable=False, name="frozen")

        @tf.function(input_signature=[tf.TensorSpec((None, 2), tf.float32, "x")])
        def product(self, x):
            return {"y": x @ self.w, "x_again": tf.identity(x)}

        @tf.function(input_signature=[tf.TensorSpec((), tf.int64, "n"), tf.TensorSpec((), tf.bool, "up")])
        def count(self, n, up):
            i = tf.constant(0, tf.int64)
            while i < n:
                i += 1
            return {"result": tf.cond(up, lambda: tf.cast(i, tf.float32) + self.frozen, lambda: -self.frozen)}

    m = M()
    tf.saved_model.save(m, path, signatures={"product": m.product, "count": m.count})
    return [answers(path, "product", x=floats(3, 2)), answers(path, "count", n=np.int64(5), up=np.bool_(True)), answers(path, "count", n=np.int64(5), up=np.bool_(False))]


@model
def module_with_a_table_of_words(path):
    words = os.path.join(os.path.dirname(path), "words.txt")
    with open(words, "w") as f:
        f.write("zero\none\ntwo\n")

    class M(tf.Module):
        def __init__(self):
            init = tf.lookup.TextFileInitializer(words, tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER)
            self.table = tf.lookup.StaticHashTable(init, -1)

        @tf.function(input_signature=[tf.TensorSpec((None,), tf.string, "word")])
        def __call__(self, word):
            return {"number": self.table.lookup(word), "upper": tf.strings.upper(word)}

    m = M()
    tf.saved_model.save(m, path, signatures=m.__call__)
    answer = answers(path, "serving_default", word=np.array([b"two", b"ten", b"zero"]))
    os.remove(words)
    return [answer]


@model
def module_in_bfloat16(path):
    class M(tf.Module):
        def __init__(self):
            self.w = tf.Variable(tf.cast([[1.5, -2.], [.25, 3.]], tf.bfloat16))

        @tf.function(input_signature=[tf.TensorSpec((None, 2), tf.float32, "x")])
        def __call__(self, x):
            return {"y": tf.cast(x, tf.bfloat16) @ self.w, "as_float": tf.cast(self.w, tf.float32)}

    m = M()
    tf.saved_model.save(m, path, signatures=m.__call__)
    return [answers(path, "serving_default", x=floats(3, 2))]


@model
def module_with_ragged_tensors_inside(path):
    class M(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec((None,), tf.string, "text")])
        def __call__(self, text):
            words = tf.strings.split(text)
            return {"lengths": tf.cast(words.row_lengths(), tf.int32), "letters": tf.reduce_sum(tf.strings.length(words), axis=1)}

    m = M()
    tf.saved_model.save(m, path, signatures=m.__call__)
    return [answers(path, "serving_default", text=np.array([b"one two", b"", b"a longer text here"]))]


@model
def module_that_counts(path):
    class M(tf.Module):
        def __init__(self):
            self.n = tf.Variable(10., name="n")

        @tf.function(input_signature=[tf.TensorSpec((), tf.float32, "by")])
        def add(self, by):
            return {"n": self.n.assign_add(by)}

    m = M()
    tf.saved_model.save(m, path, signatures={"add": m.add})
    return [answers(path, "add", by=np.float32(2.5))]


@model
def module_with_an_optional_input(path):
    class M(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec((None,), tf.float32, "x"), tf.TensorSpec((), tf.float32, "scale")])
        def __call__(self, x, scale=tf.constant(3.)):
            return {"y": x * scale}

    m = M()
    tf.saved_model.save(m, path, signatures=m.__call__)
    from tensorflow.core.protobuf import saved_model_pb2
    pb = saved_model_pb2.SavedModel()
    file = os.path.join(path, "saved_model.pb")
    with open(file, "rb") as f:
        pb.ParseFromString(f.read())
    sig = pb.meta_graphs[0].signature_def["serving_default"]
    sig.defaults["scale"].CopyFrom(tf.make_tensor_proto(3.))
    with open(file, "wb") as f:
        f.write(pb.SerializeToString())
    x = floats(4)
    return [{"signature": "serving_default", "inputs": {"x": x}, "outputs": {"y": x * np.float32(3)}},
            {"signature": "serving_default", "inputs": {"x": x, "scale": np.float32(-1)}, "outputs": {"y": -x}}]


@model
def variables_of_all_types(path):
    class M(tf.Module):
        def __init__(self):
            self.v = [tf.Variable(tf.cast([1, 0, 3], d), name=d.name) for d in (tf.float64, tf.int8, tf.uint8, tf.int32, tf.int64, tf.bool, tf.complex64, tf.half)]
            self.s = tf.Variable([b"text", b"\x00\xff"], name="string")
            self.empty = tf.Variable(tf.zeros((0, 3)), shape=(None, 3), name="empty")

        @tf.function(input_signature=[])
        def __call__(self):
            return {**{v.dtype.name: v.read_value() for v in self.v}, "string": self.s.read_value(), "empty": self.empty.read_value()}

    m = M()
    tf.saved_model.save(m, path, signatures=m.__call__)
    return [answers(path, "serving_default")]


def v1_graph(path, build, tags=("serve",), resource=True, strip=False):
    """Builds and saves with TensorFlow 1's builder; build(session) returns what add_meta_graph_and_variables takes."""
    with tf.Graph().as_default(), v1.Session() as session, v1.variable_scope("", use_resource=resource):
        signatures, results, options = build(session)
        builder = v1.saved_model.builder.SavedModelBuilder(path)
        builder.add_meta_graph_and_variables(session, list(tags), signature_def_map=signatures, strip_default_attrs=strip, **options)
        builder.save()
    return results


def predict(inputs, outputs):
    return v1.saved_model.signature_def_utils.predict_signature_def(inputs, outputs)


def linear(session, x_value):
    x = v1.placeholder(tf.float32, (None, 3), "x")
    w = v1.get_variable("net/w", initializer=floats(3, 2))
    b = v1.get_variable("net/b", initializer=np.float32([1, -1]), trainable=False)
    y = tf.nn.relu(x @ w + b, name="y")
    session.run(v1.global_variables_initializer())
    return x, y, {"inputs": {"x": x_value}, "outputs": {"y": session.run(y, {x: x_value})}}


@model
def v1_with_resource_variables(path):
    def build(session):
        x, y, result = linear(session, floats(4, 3))
        return {"serving_default": predict({"x": x}, {"y": y})}, [{"signature": "serving_default", **result}], {}
    return v1_graph(path, build)


@model
def v1_with_reference_variables(path):
    def build(session):
        x, y, result = linear(session, floats(4, 3))
        return {"serving_default": predict({"x": x}, {"y": y})}, [{"signature": "serving_default", **result}], {}
    return v1_graph(path, build, resource=False, strip=True)


@model
def v1_without_tags(path):
    def build(session):
        x, y, result = linear(session, floats(2, 3))
        return {"default": predict({"x": x}, {"y": y})}, [{"signature": "default", "tags": [], **result}], {}
    return v1_graph(path, build, tags=())


@model
def v1_with_several_metagraphs(path):
    x_value = floats(2, 3)
    results = []
    with tf.Graph().as_default(), v1.Session() as session:
        x, y, result = linear(session, x_value)
        builder = v1.saved_model.builder.SavedModelBuilder(path)
        builder.add_meta_graph_and_variables(session, ["train"], {"double": predict({"x": x}, {"y": 2 * y})})
        results.append({"signature": "double", "tags": ["train"], "inputs": {"x": x_value}, "outputs": {"y": 2 * result["outputs"]["y"]}})
    with tf.Graph().as_default(), v1.Session() as session:
        x, y, result = linear(session, x_value)
        builder.add_meta_graph(["gpu", "serve"], {"plain": predict({"x": x}, {"y": y})})
        results.append({"signature": "plain", "tags": ["serve", "gpu"], **result})
    builder.save()
    return results


@model
def v1_with_assets_and_tables(path):
    words = os.path.join(os.path.dirname(path), "vocabulary.txt")
    with open(words, "w") as f:
        f.write("a\nb\nc\n")

    def build(session):
        word = v1.placeholder(tf.string, (None,), "word")
        init = tf.lookup.TextFileInitializer(words, tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER)
        table = tf.lookup.StaticVocabularyTable(init, 2)
        counter = v1.get_variable("counter", initializer=np.int64(100), collections=[v1.GraphKeys.LOCAL_VARIABLES])
        ids = table.lookup(word) + counter
        session.run([v1.tables_initializer(), v1.local_variables_initializer()])
        value = np.array([b"c", b"a", b"zz"])
        result = {"signature": "serving_default", "inputs": {"word": value}, "outputs": {"id": session.run(ids, {word: value})}}
        return {"serving_default": predict({"word": word}, {"id": ids})}, [result], {
            "assets_collection": v1.get_collection(v1.GraphKeys.ASSET_FILEPATHS),
            "main_op": tf.group(v1.tables_initializer(), v1.local_variables_initializer())}
    results = v1_graph(path, build)
    os.remove(words)
    return results


@model
def v1_with_a_sparse_input_and_an_input_handed_on(path):
    def build(session):
        x = v1.sparse_placeholder(tf.float32, (None, 3), "x")
        k = v1.placeholder(tf.float32, (), "k")
        y = tf.sparse.to_dense(x) * k
        info = v1.saved_model.utils.build_tensor_info
        signature = v1.saved_model.signature_def_utils.build_signature_def(
            {"x": info(x), "k": info(k)}, {"y": info(y), "k": info(k), "y_too": info(y)}, "tensorflow/serving/predict")
        dense = np.float32([[0, 2, 0], [0, 0, 3]])
        result = {"signature": "sparse", "inputs": {"x/values": np.float32([2, 3]), "x/indices": np.int64([[0, 1], [1, 2]]), "x/dense_shape": np.int64([2, 3]), "k": np.float32(2)},
                  "outputs": {"y": 2 * dense, "y_too": 2 * dense, "k": np.float32(2)}}
        return {"sparse": signature}, [result], {}
    return v1_graph(path, build)


@model
def v1_with_loops_and_conditionals(path):
    def build(session):
        v1.disable_control_flow_v2()
        x = v1.placeholder(tf.float32, (None,), "x")
        n = v1.placeholder(tf.int32, (), "n")
        _, y = v1.while_loop(lambda i, _: i < n, lambda i, y: (i + 1, y * 2), (0, x))
        z = v1.cond(n > 2, lambda: y + 1, lambda: -y)
        v1.enable_control_flow_v2()
        value = floats(3)
        return {"loop": predict({"x": x, "n": n}, {"z": z})}, [
            {"signature": "loop", "inputs": {"x": value, "n": np.int32(count)}, "outputs": {"z": session.run(z, {x: value, n: count})}} for count in (1, 4)], {}
    return v1_graph(path, build)


@model
def v1_with_partitioned_variables(path):
    def build(session):
        with v1.variable_scope("net", partitioner=v1.fixed_size_partitioner(3)):
            w = v1.get_variable("w", (7, 2), initializer=v1.random_normal_initializer(seed=1))
        x = v1.placeholder(tf.float32, (None, 7), "x")
        y = x @ tf.convert_to_tensor(w)
        session.run(v1.global_variables_initializer())
        value = floats(2, 7)
        return {"serving_default": predict({"x": x}, {"y": y})}, [{"signature": "serving_default", "inputs": {"x": value}, "outputs": {"y": session.run(y, {x: value})}}], {}
    return v1_graph(path, build)


def main():
    args = arguments()
    rec = Recording(args.out)
    chosen = [m for m in MODELS if args.run.search(m.__name__)]
    for i, make in enumerate(chosen):
        progress(i, len(chosen), make.__name__)
        np.random.seed(i)
        keras.utils.set_random_seed(i)
        path = os.path.join(os.path.abspath(args.out), make.__name__, "1")
        os.makedirs(os.path.dirname(path))
        for k, answer in enumerate(make(path)):
            rec.cases.append({
                "name": "%s/%s/%d" % (make.__name__, answer["signature"], k), "model": make.__name__,
                "tags": answer.get("tags"), "signature": answer["signature"],
                "inputs": {n: rec.array(v) for n, v in answer["inputs"].items()},
                "outputs": {n: rec.array(v) for n, v in answer["outputs"].items()},
                "weights": {n: rec.array(v) for n, v in answer.get("weights", {}).items()},
                "gradients": {kind: {n: g if g is None else rec.array(g) for n, g in by.items()}
                              for kind, by in answer.get("gradients", {}).items()}})
        keras.backend.clear_session()
    rec.save({"cases": rec.cases})


if __name__ == "__main__":
    main()
