"""hvd.allreduce: values, types, arguments, gradients."""

import numpy as np
import pytest
import tensorflow as tf
from modes import COMPLEX, FLOATS, INTEGERS, NUMBERS, in_both_modes, mine, numbers, of_ranks, run

import tfhvd as hvd

pytestmark = pytest.mark.ranks(1, 2)

REFERENCE = {
    hvd.Sum: lambda values: np.sum(values, axis=0),
    hvd.Average: lambda values: np.mean(values, axis=0),
    hvd.Min: lambda values: np.min(values, axis=0),
    hvd.Max: lambda values: np.max(values, axis=0),
    hvd.Product: lambda values: np.prod(values, axis=0),
}


@in_both_modes
@pytest.mark.ranks(1, 2, 4)
@pytest.mark.parametrize("op", list(REFERENCE), ids=str)
def test_every_type(mode, op):
    for dtype in NUMBERS:
        values = of_ranks((3, 5), dtype)
        result = run(mode, lambda x: hvd.allreduce(x, op=op), mine(values, dtype))
        expected = REFERENCE[op](values)
        if dtype in INTEGERS:
            expected = np.trunc(expected)
        assert result.dtype == dtype
        assert result.shape == (3, 5)
        np.testing.assert_array_equal(numbers(result), expected, err_msg=dtype.name)


@in_both_modes
def test_truth_values(mode):
    values = [np.array([True, False, rank == 0]) for rank in range(hvd.size())]
    x = tf.constant(values[hvd.rank()])
    both = run(mode, lambda x: (hvd.allreduce(x, op=hvd.Min), hvd.allreduce(x, op=hvd.Max)), x)
    np.testing.assert_array_equal(both[0], np.all(values, axis=0))
    np.testing.assert_array_equal(both[1], np.any(values, axis=0))


@in_both_modes
@pytest.mark.ranks(1, 2, 4)
@pytest.mark.parametrize("dtype", COMPLEX, ids=lambda d: d.name)
def test_complex_numbers_are_added(mode, dtype):
    def f(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0)
            loss = tf.math.real(tf.reduce_sum(y)) * (hvd.rank() + 1)
        parts = hvd.reducescatter(x, op=hvd.Sum)
        both = hvd.grouped_allreduce([x, 2 * x])
        return y, both, parts, tape.gradient(loss, x)

    values = [np.array([1 + 2j * rank, rank - 1j, 3.0]) for rank in range(hvd.size())]
    total = np.sum(values, axis=0)
    y, both, part, gradient = run(mode, f, tf.constant(values[hvd.rank()], dtype))
    assert {y.dtype, both[0].dtype, part.dtype, gradient.dtype} == {dtype}
    np.testing.assert_allclose(y, 2 * total)
    np.testing.assert_allclose(both[0], total / hvd.size(), rtol=1e-6)
    np.testing.assert_allclose(both[1], 2 * total / hvd.size(), rtol=1e-6)
    np.testing.assert_allclose(part, np.array_split(total, hvd.size())[hvd.rank()])
    np.testing.assert_allclose(gradient, [2 * sum(range(1, hvd.size() + 1))] * 3)
    for op in (hvd.Min, hvd.Max, hvd.Product):
        with pytest.raises(TypeError, match=f"can be added only. Received: .* op={op}"):
            hvd.allreduce(tf.constant(1j, dtype), op=op)


def test_slices_of_whole_numbers_are_averaged_and_cut_off():
    slices = tf.IndexedSlices(tf.constant([7, -3]), tf.constant([0, 1]), tf.constant([4]))
    result = hvd.allreduce(slices, op=hvd.Average)
    assert result.values.dtype == tf.int32
    expected = np.trunc(np.array([7, -3] * hvd.size()) / hvd.size())
    np.testing.assert_array_equal(result.values, expected)


@in_both_modes
@pytest.mark.parametrize("shape", [(), (0,), (1,), (4, 0, 3), (7,), (1000, 1001)], ids=str)
def test_every_size(mode, shape):
    values = of_ranks(shape, tf.float32)
    result = run(mode, lambda x: hvd.allreduce(x, op=hvd.Sum), mine(values, tf.float32))
    np.testing.assert_array_equal(result, np.sum(values, axis=0))


@in_both_modes
def test_average_is_what_is_meant_where_nothing_is_said(mode):
    x = tf.constant([1.0, 2.0]) * (hvd.rank() + 1)
    expected = np.array([1.0, 2.0]) * (hvd.size() + 1) / 2
    np.testing.assert_allclose(run(mode, hvd.allreduce, x), expected)
    np.testing.assert_allclose(run(mode, lambda x: hvd.allreduce(x, average=True), x), expected)
    summed = run(mode, lambda x: hvd.allreduce(x, average=False), x)
    np.testing.assert_allclose(summed, expected * hvd.size())


@in_both_modes
def test_factors_keep_their_precision(mode):
    x = tf.constant([1.0, 3.0], tf.float64)
    result = run(
        mode,
        lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.1, postscale_factor=1 / 3),
        x,
    )
    expected = sum([np.array([1.0, 3.0]) * 0.1] * hvd.size()) * (1 / 3)
    np.testing.assert_allclose(result, expected, rtol=1e-15)


@in_both_modes
def test_whole_numbers_are_scaled_and_cut_off(mode):
    x = tf.constant([3, 5])
    result = run(mode, lambda x: hvd.allreduce(x, op=hvd.Sum, postscale_factor=0.5), x)
    np.testing.assert_array_equal(result, np.trunc(np.array([3, 5]) * hvd.size() * 0.5))


def test_takes_what_converts_to_a_tensor():
    assert hvd.allreduce(2.0, op=hvd.Sum) == 2.0 * hvd.size()
    np.testing.assert_array_equal(hvd.allreduce([1, 2], op=hvd.Max), [1, 2])
    np.testing.assert_array_equal(hvd.allreduce(np.ones(3), op=hvd.Average), np.ones(3))
    np.testing.assert_array_equal(hvd.allreduce(tf.Variable([4.0]), op=hvd.Average), [4.0])


def test_the_input_stays_as_it_was():
    x = tf.constant([1.0, 2.0]) * (hvd.rank() + 1)
    variable = tf.Variable(x)
    for _ in range(3):
        hvd.allreduce(x, op=hvd.Sum)
        hvd.allreduce(variable, op=hvd.Sum)
        tf.function(lambda: hvd.allreduce(variable, op=hvd.Sum))()
    np.testing.assert_array_equal(x, np.array([1.0, 2.0]) * (hvd.rank() + 1))
    np.testing.assert_array_equal(variable, x)


def test_an_input_that_is_used_again_stays_as_it_was():
    @tf.function
    def f(x):
        y = x * 2
        return hvd.allreduce(y, op=hvd.Sum), y + 1

    reduced, other = f(tf.constant([1.0, 2.0]) * (hvd.rank() + 1))
    np.testing.assert_array_equal(reduced, np.array([2.0, 4.0]) * sum(range(1, hvd.size() + 1)))
    np.testing.assert_array_equal(other, np.array([2.0, 4.0]) * (hvd.rank() + 1) + 1)


@in_both_modes
@pytest.mark.parametrize("compression", ["none", "fp16", "bf16"])
def test_compression(mode, compression):
    compress = getattr(hvd.Compression, compression)
    for dtype in NUMBERS:
        x = tf.cast([1, 2], dtype)
        result = run(mode, lambda x: hvd.allreduce(x, op=hvd.Sum, compression=compress), x)
        assert result.dtype == dtype
        np.testing.assert_array_equal(numbers(result), np.array([1, 2]) * hvd.size())


def test_compression_travels_in_16_bits():
    graph = tf.function(lambda x: hvd.allreduce(x, compression=hvd.Compression.fp16))
    operations = graph.get_concrete_function(tf.TensorSpec([2])).graph.get_operations()
    [reduction] = [o for o in operations if o.type == "TfhvdAllreduce"]
    assert reduction.inputs[0].dtype == tf.float16


@in_both_modes
@pytest.mark.ranks(1, 2, 4)
def test_slices(mode):
    rows = hvd.rank() + 1

    def f(values, indices):
        slices = tf.IndexedSlices(values, indices, tf.constant([10, 2]))
        return (
            hvd.allreduce(slices, op=hvd.Sum),
            hvd.allreduce(slices),
            hvd.allreduce(slices, op=hvd.Sum, prescale_factor=2.0, postscale_factor=3.0),
        )

    values, indices = tf.ones([rows, 2]), tf.range(rows, dtype=tf.int64)
    summed, averaged, scaled = run(mode, f, values, indices)
    expected = np.zeros([10, 2])
    for rank in range(hvd.size()):
        expected[: rank + 1] += 1
    for slices, factor in ((summed, 1), (averaged, 1 / hvd.size()), (scaled, 6)):
        assert isinstance(slices, tf.IndexedSlices)
        np.testing.assert_allclose(tf.convert_to_tensor(slices), expected * factor, rtol=1e-6)


@in_both_modes
@pytest.mark.ranks(1, 2, 4)
def test_gradient_of_sum_and_average(mode):
    for dtype in FLOATS:
        x = tf.ones([2, 2], dtype)
        weight = tf.cast([[1, 2], [3, 4]], dtype) * tf.cast(hvd.rank() + 1, dtype)

        def f(x, weight, op):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = hvd.allreduce(x, op=op, prescale_factor=2.0, postscale_factor=0.5)
                loss = tf.reduce_sum(y * weight)
            return tape.gradient(loss, x)

        total = np.array([[1, 2], [3, 4]]) * sum(range(1, hvd.size() + 1))
        summed = run(mode, lambda x, w: f(x, w, hvd.Sum), x, weight)
        averaged = run(mode, lambda x, w: f(x, w, hvd.Average), x, weight)
        np.testing.assert_allclose(numbers(summed), total)
        np.testing.assert_allclose(numbers(averaged), total / hvd.size(), rtol=1e-2)


@in_both_modes
@pytest.mark.ranks(1, 2, 4)
@pytest.mark.parametrize("prescale, postscale", [(1.0, 1.0), (2.0, 0.3), (-1.0, 2.0)])
@pytest.mark.parametrize("op", [hvd.Min, hvd.Max], ids=str)
def test_gradient_of_extremes(mode, op, prescale, postscale):
    # The first element is a tie, the second is highest on the last rank, the third on the first.
    values = [np.array([5.0, r, -r], np.float32) for r in range(hvd.size())]

    def f(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = hvd.allreduce(x, op=op, prescale_factor=prescale, postscale_factor=postscale)
            loss = tf.reduce_sum(y * tf.constant([1.0, 10.0, 100.0]))
        return tape.gradient(loss, x)

    gradient = run(mode, f, tf.constant(values[hvd.rank()]))
    put_in = np.array(values) * prescale
    extreme = put_in.min(axis=0) if op == hvd.Min else put_in.max(axis=0)
    holds = put_in == extreme
    share = holds[hvd.rank()] / holds.sum(axis=0)
    expected = share * np.array([1.0, 10.0, 100.0]) * hvd.size() * prescale * postscale
    np.testing.assert_allclose(gradient, expected, rtol=1e-5)


@in_both_modes
@pytest.mark.ranks(1, 2, 4)
def test_gradient_of_product_with_zeros(mode):
    # Columns: no zero, rank 0 has a zero, all ranks have zeros.
    values = [np.array([r + 2.0, r, 0.0]) for r in range(hvd.size())]

    def f(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = hvd.allreduce(x, op=hvd.Product, prescale_factor=2.0, postscale_factor=3.0)
            loss = tf.reduce_sum(y)
        return tape.gradient(loss, x)

    gradient = run(mode, f, tf.constant(values[hvd.rank()]))
    others = [values[r] for r in range(hvd.size()) if r != hvd.rank()]
    product = np.prod(np.array([np.ones(3), *others]), axis=0)
    np.testing.assert_allclose(gradient, hvd.size() * product * 3.0 * 2.0 ** hvd.size())


@in_both_modes
@pytest.mark.ranks(1, 2, 4)
def test_second_gradient(mode):
    def f(x):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                loss = tf.reduce_sum(hvd.allreduce(x, op=hvd.Sum) ** 3)
            first = inner.gradient(loss, x)
        return outer.gradient(first, x)

    n = hvd.size()
    # The sum of the losses is n (n x)^3; the sum of its gradients 3 n^2 (n x)^2.
    np.testing.assert_allclose(run(mode, f, tf.constant([1.0, 2.0])), n**3 * 6 * np.array([1, 2.0]))


@in_both_modes
def test_gradient_through_a_gather(mode):
    def f(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(tf.gather(hvd.allreduce(x, op=hvd.Sum), [1, 1]))
        return tape.gradient(loss, x)

    np.testing.assert_allclose(run(mode, f, tf.ones([3])), [0, 2 * hvd.size(), 0])


def test_the_shape_is_known_in_a_graph():
    f = tf.function(hvd.allreduce).get_concrete_function(tf.TensorSpec([None, 3]))
    assert f.output_shapes.as_list() == [None, 3]


@in_both_modes
@pytest.mark.parametrize(
    "kind, arguments, text",
    [
        (TypeError, {"tensor": "text"}, "Received: string. Expected: one of uint8"),
        (TypeError, {"tensor": tf.bitcast(np.uint8(1), tf.qint8)}, "Received: qint8. Expected"),
        (TypeError, {"tensor": True, "op": hvd.Sum}, "Received: a bool tensor, op=Sum"),
        (TypeError, {"tensor": tf.ragged.constant([[1], []])}, "pass value.to_tensor()."),
        (TypeError, {"tensor": 1.0, "prescale_factor": "big"}, "prescale_factor='big'"),
        (TypeError, {"tensor": 1.0, "name": 3}, "name=3. Expected: text"),
        (TypeError, {"tensor": 1.0, "process_set": [0, 1]}, "process_set=[0, 1]. Expected"),
        (ValueError, {"tensor": 1.0, "op": 17}, "op=17. Expected: hvd.Average"),
        (
            ValueError,
            {"tensor": 1.0, "op": hvd.Sum, "average": True},
            "average=True, op=Sum); pass",
        ),
        (ValueError, {"tensor": 1.0, "name": ""}, "The name is empty"),
        (
            NotImplementedError,
            {"tensor": tf.IndexedSlices([1.0], [0], [1]), "op": hvd.Min},
            "op=Min. Expected: hvd.Average or hvd.Sum",
        ),
        (
            ValueError,
            {"tensor": 1.0, "process_set": hvd.ProcessSet([0])},
            "The process set is not registered: ProcessSet(",
        ),
    ],
)
def test_wrong_arguments(mode, kind, arguments, text):
    with pytest.raises(kind) as raised:
        run(mode, lambda: hvd.allreduce(**arguments))
    assert text in str(raised.value)


@in_both_modes
def test_slices_are_refused_where_they_mean_nothing(mode):
    slices = tf.IndexedSlices([1.0], [0], [1])
    for call in (
        hvd.allgather,
        hvd.alltoall,
        hvd.reducescatter,
        lambda x: hvd.broadcast(x, 0),
    ):
        with pytest.raises(NotImplementedError, match="IndexedSlices"):
            run(mode, lambda call=call: call(slices))


@in_both_modes
@pytest.mark.ranks(1, 2, 4)
def test_adasum_adds_orthogonal_and_averages_parallel_gradients(mode):
    for dtype in FLOATS:
        same = tf.constant([3, -4], dtype)
        own = tf.one_hot(hvd.rank(), hvd.size(), dtype=dtype) * tf.cast(hvd.rank() + 1, dtype)
        results = run(mode, lambda *x: hvd.grouped_allreduce(x, op=hvd.Adasum), same, own)
        assert [result.dtype for result in results] == [dtype, dtype]
        np.testing.assert_array_equal(numbers(results[0]), [3, -4])
        np.testing.assert_array_equal(numbers(results[1]), np.arange(hvd.size()) + 1)


def test_adasum_is_for_whole_floating_point_gradients():
    with pytest.raises(TypeError, match=r"Adasum .* Received: int32. Expected: float16"):
        hvd.allreduce(tf.constant([1]), op=hvd.Adasum)
    with pytest.raises(ValueError, match=r"Adasum .* whole gradients.* pass op=hvd.Average"):
        hvd.reducescatter(tf.constant([1.0]), op=hvd.Adasum)


def adasum(vectors):
    """By the definition, in a tree of ranks."""
    if len(vectors) == 1:
        return vectors[0]
    half = 1 << (len(vectors) - 1).bit_length() - 1  # the largest power of two that leaves some
    a, b = adasum(vectors[:half]), adasum(vectors[half:])
    return a * (1 - a @ b / (2 * a @ a)) + b * (1 - a @ b / (2 * b @ b))


@in_both_modes
@pytest.mark.ranks(1, 2, 4)
@pytest.mark.parametrize("dtype", [tf.float32, tf.float64], ids=lambda d: d.name)
def test_gradient_of_adasum(mode, dtype):
    """As by small steps of this rank's values."""
    n, me, scales = hvd.size(), hvd.rank(), (2.0, -0.5)
    values = [np.random.default_rng(r).normal(size=3) for r in range(n)]
    weights = np.array([1.0, -2.0, 3.0])

    def f(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y, _ = hvd.grouped_allreduce(
                [x, 2 * x], op=hvd.Adasum, prescale_factor=scales[0], postscale_factor=scales[1]
            )
            loss = tf.reduce_sum(y * tf.constant(weights, dtype)) * (me + 1)
        return y, tape.gradient(loss, x)

    result, gradient = run(mode, f, tf.constant(values[me], dtype))
    assert gradient.dtype == dtype
    scale = np.prod(scales)
    np.testing.assert_allclose(result, scale * adasum(values), rtol=1e-5)
    step, expected = 1e-6, []
    for unit in np.eye(3):
        moved = [
            adasum([v + sign * step * unit if r == me else v for r, v in enumerate(values)])
            for sign in (1, -1)
        ]
        slope = weights @ (moved[0] - moved[1]) / (2 * step)
        expected.append(scale * slope * n * (n + 1) / 2)  # of all ranks' losses together
    np.testing.assert_allclose(gradient, expected, rtol=1e-5 if dtype == tf.float32 else 1e-7)
