import subprocess
import sys
from itertools import product as cases

import numpy as np
import pytest

from geomix.algebra import PRODUCTS, Algebra, SignedTriplets, pair_count
from tests.conftest import ROOT

from . import oracle


def restrictions(p, q, r):
    """The full algebra, the one without its highest grade, the even subalgebra and a set with a hole in it."""
    n = p + q + r
    return [None, tuple(range(n)), tuple(range(0, n + 1, 2)), (0, n)]


ALGEBRAS = [Algebra(*s, grades) for s in oracle.SIGNATURES for grades in dict.fromkeys(restrictions(*s))]


@pytest.mark.parametrize("algebra", ALGEBRAS, ids=str)
@pytest.mark.parametrize("name", ["geometric", "wedge", "inner", "left_contraction"])
def test_tables_equal_those_of_clifford(algebra, name):
    np.testing.assert_array_equal(algebra.product(name).dense(), oracle.table(algebra, name))


@pytest.mark.parametrize("algebra", ALGEBRAS, ids=str)
def test_signs_and_projections_equal_those_of_clifford(algebra):
    m = np.random.default_rng(0).normal(size=algebra.dim)
    theirs = oracle.to_clifford(algebra, m)
    np.testing.assert_array_equal(m * algebra.reversion, oracle.from_clifford(algebra, ~theirs))
    np.testing.assert_array_equal(m * algebra.involution, oracle.from_clifford(algebra, theirs.gradeInvol()))
    np.testing.assert_array_equal(m * algebra.conjugation, oracle.from_clifford(algebra, theirs.conjugate()))
    for grade in algebra.grades:
        table = algebra.projection(grade)
        ours = np.einsum("i,j,ijk->k", m, np.ones(1), table.dense())
        np.testing.assert_array_equal(ours, oracle.from_clifford(algebra, theirs(grade)))
    np.testing.assert_array_equal(
        np.einsum("i,j,ijk->k", m, np.ones(1), algebra.unary("reversion").dense()), m * algebra.reversion
    )
    for index, square in enumerate(algebra.squares):
        blade = oracle.to_clifford(algebra, np.eye(algebra.dim)[index])
        assert (blade * ~blade).value[0] == square


def agrees(table: SignedTriplets, truth: np.ndarray, pairs: np.ndarray) -> bool:
    a, b = pairs
    ours = np.einsum("ni,nj,ijk->nk", a, b, table.dense(), optimize=True)
    return np.abs(ours - truth).max() < 1e-9


def test_every_single_sign_flip_of_a_table_is_detected(capsys):
    """Mutation check of the oracle test itself: random multivectors through clifford's own product."""
    made = detected = 0
    generator = np.random.default_rng(0)
    for signature in oracle.SIGNATURES:
        n = sum(signature)
        for grades in (None, tuple(range(n))):
            algebra = Algebra(*signature, grades)
            pairs = generator.normal(size=(2, 2, algebra.dim))
            truth = np.array([oracle.multiply(algebra, a, b) for a, b in zip(*pairs, strict=True)])
            table = algebra.product()
            assert agrees(table, truth, pairs)
            for flipped in range(len(table)):
                sign = table.sign.copy()
                sign[flipped] *= -1
                mutant = SignedTriplets(table.i, table.j, table.k, sign, table.left, table.right, table.out)
                made += 1
                detected += not agrees(mutant, truth, pairs)
    with capsys.disabled():
        print(f"\nsign flips detected / made: {detected} / {made}")
    assert detected == made > 4000


@pytest.mark.parametrize("n,k,dim,pairs", [(3, 3, 8, 64), (4, 3, 15, 211), (4, 4, 16, 256), (5, 3, 26, 556)])
def test_counts_of_the_article(n, k, dim, pairs):
    algebra = Algebra.truncated(n, k)
    assert (algebra.dim, len(algebra.product())) == (dim, pairs)


@pytest.mark.parametrize("n,k", [(n, k) for n in range(1, 8) for k in range(n + 1)])
def test_closed_formula_counts_pairs(n, k):
    assert pair_count(n, k) == len(Algebra.truncated(n, k).product())


@pytest.mark.parametrize("algebra", ALGEBRAS, ids=str)
def test_truncation_discards_exactly_the_grades_outside(algebra):
    full = algebra.full
    kept = np.flatnonzero(np.isin(full.blades, algebra.blades))
    expected = full.product().dense()[np.ix_(kept, kept, range(full.dim))]
    outside = np.setdiff1d(range(full.dim), kept)
    np.testing.assert_array_equal(algebra.product().dense(), expected[..., kept])
    assert set(full.grade[outside]).isdisjoint(algebra.grades)


@pytest.mark.parametrize("p,q", [(3, 0), (2, 1), (1, 2), (0, 3), (1, 1), (0, 1), (1, 3), (2, 2)])
def test_left_multiplication_is_multiplicative(p, q):
    """kingdon #84: M(xy) = M(x) M(y) whatever the signs of the squares."""
    table = Algebra(p, q).product().dense()
    x, y = np.random.default_rng(0).normal(size=(2, len(table)))
    matrix = lambda m: np.einsum("i,ijk->kj", m, table)
    xy = np.einsum("i,j,ijk->k", x, y, table)
    np.testing.assert_allclose(matrix(xy), matrix(x) @ matrix(y), atol=1e-12)


@pytest.mark.parametrize("signature", oracle.SIGNATURES)
def test_full_products_are_associative(signature):
    """rotorquant PR 14: never an expected failure. Exact on every triple of basis blades."""
    table = Algebra(*signature).product().dense().astype(np.int64)
    left = np.einsum("ijm,mkl->ijkl", table, table, optimize=True)
    right = np.einsum("jkm,iml->ijkl", table, table, optimize=True)
    np.testing.assert_array_equal(left, right)


def test_signs_that_were_wrong_elsewhere():
    """rotorquant PR 14: e23 e123 = -e1 in Cl(3)."""
    algebra = Algebra(3)
    row = algebra.product().dense()[algebra.index("e23"), algebra.index("e123")]
    np.testing.assert_array_equal(row, -np.eye(8)[algebra.index("e1")])


def test_reversion_is_an_antiautomorphism_and_involution_an_automorphism():
    for signature in oracle.SIGNATURES:
        algebra = Algebra(*signature)
        table = algebra.product().dense()
        reversed_product = table * algebra.reversion
        np.testing.assert_array_equal(
            reversed_product, table.transpose(1, 0, 2) * algebra.reversion[:, None, None] * algebra.reversion[:, None]
        )
        np.testing.assert_array_equal(
            table * algebra.involution, table * algebra.involution[:, None, None] * algebra.involution[:, None]
        )


def test_products_split_the_geometric_product_of_vectors():
    """ab = a.b + a^b, and the commutator of vectors is the wedge."""
    algebra = Algebra(2, 1, 1)
    dense = {name: algebra.product(name).dense() for name in PRODUCTS}
    vectors = algebra.slice(1)
    parts = {name: t[vectors, vectors] for name, t in dense.items()}
    np.testing.assert_array_equal(parts["geometric"], parts["inner"] + parts["wedge"])
    np.testing.assert_array_equal(parts["commutator"], parts["wedge"])
    for name in ("dot", "left_contraction", "right_contraction", "scalar"):
        np.testing.assert_array_equal(parts[name], parts["inner"])
    # right contraction mirrors left contraction under reversion: ~(a |_ b) = ~b _| ~a
    r = algebra.reversion.astype(float)
    mirrored = dense["left_contraction"].transpose(1, 0, 2) * r[:, None, None] * r[:, None] * r
    np.testing.assert_array_equal(dense["right_contraction"], mirrored)
    full = dense["geometric"]
    np.testing.assert_array_equal(dense["commutator"], (full - full.transpose(1, 0, 2)) / 2)


def test_a_table_is_made_without_a_loop_over_its_pairs_and_without_torch():
    """65,536 pairs of Cl(8) in a few array operations; one for each shift of a bit."""
    script = (
        "from geomix.algebra import Algebra; from tests.counting import calls; import sys; Algebra(2).product();"
        "print(calls(Algebra(8).product), len(Algebra(8).product()), 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    made, pairs, torch = done.stdout.split()
    assert (int(pairs), torch) == (65536, "False")
    assert int(made) < 1000


def test_swap_gradients_and_controls_are_permutations_of_the_same_triplets():
    algebra = Algebra(2, 1, 0, (0, 1, 2))
    table = algebra.product()
    dense = table.dense()
    np.testing.assert_array_equal(table.swap().dense(), dense.transpose(1, 0, 2))
    np.testing.assert_array_equal(table.gradient_left().dense(), dense.transpose(2, 1, 0))
    np.testing.assert_array_equal(table.gradient_right().dense(), dense.transpose(0, 2, 1))
    np.testing.assert_array_equal(table.untwisted().dense(), abs(dense))
    np.testing.assert_array_equal(abs(table.shuffled(1).dense()), abs(dense))
    assert table.shuffled(1) == table.shuffled(1) != table.shuffled(2)
    t = np.random.default_rng(0).choice([-1, 1], algebra.dim)
    np.testing.assert_array_equal(table.gauge(t).dense(), dense * t[:, None, None] * t[:, None] * t)
    assert table.swap().swap() == table and hash(table.swap().swap()) == hash(table)


@pytest.mark.parametrize(
    "make,words",
    [
        (lambda: Algebra(-1), "p of Cl"),
        (lambda: Algebra(3.0), "p of Cl"),
        (lambda: Algebra(True), "p of Cl"),
        (lambda: Algebra(3, grades=(0, 4)), "grades"),
        (lambda: Algebra(3, grades=(1.7,)), "whole"),
        (lambda: Algebra(3, grades=()), "grades"),
        (lambda: Algebra(3).product("cross"), "cross"),
        (lambda: Algebra(3, grades=(0, 1)).slice(2), "grade 2"),
        (lambda: Algebra(3).index("e4"), "e4"),
        (lambda: SignedTriplets([0], [0], [3], [1], 2, 2, 2), "index k"),
        (lambda: SignedTriplets([0], [0], [0], [0], 2, 2, 2), "signs"),
        (lambda: SignedTriplets([0], [0], [0], [1.9], 2, 2, 2), "sign of signed triplets holds 1.9"),
        (lambda: SignedTriplets([0], [0], [0], [257], 2, 2, 2), "257"),
        (lambda: SignedTriplets([0.5], [0], [0], [1], 2, 2, 2), "i of signed triplets holds 0.5"),
        (lambda: Algebra(3).projection(9), "grade 9"),
    ],
)
def test_mistakes_end_in_a_sentence(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_signature_of_each_vector_is_checked():
    """cliffordlayers accepts [5, 1, 0] as a signature; here squares are counts, so that no such vector can be named."""
    for p, q, r in cases(range(3), repeat=3):
        algebra = Algebra(p, q, r)
        squares = [int(algebra.product().dense()[v, v, 0]) for v in range(1, algebra.n + 1)]
        assert squares == [1] * p + [-1] * q + [0] * r == algebra.metric.tolist()
