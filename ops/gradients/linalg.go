package gradients

import (
	"fmt"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops/raw"
)

// The formulas are those of M. Giles, "An extended collection of matrix
// derivative results for forward and reverse mode automatic differentiation"
// (2008), and for the singular values of C. Ionescu et al., arXiv:1509.07838.
// All matrices are [..., rows, columns]; ᴴ is the conjugate transpose.

// matMul multiplies batches of matrices; adjA and adjB take a factor's adjoint.
func (c *Context) matMul(a, b tf.Output, adjA, adjB bool) tf.Output {
	return raw.BatchMatMulV2(c, a, b, raw.WithAdjX(adjA), raw.WithAdjY(adjB))
}

// transposed exchanges the last two dimensions.
func (c *Context) transposed(t tf.Output) tf.Output {
	if s := c.Static(t); len(s) >= 2 {
		perm := make([]int64, len(s))
		for i := range perm {
			perm[i] = int64(i)
		}
		n := len(perm)
		perm[n-1], perm[n-2] = perm[n-2], perm[n-1]
		return raw.Transpose(c, t, c.Ints(tf.Int32, perm...))
	}
	rank := c.Rank(t)
	one := c.Int(tf.Int32, 1)
	outer := raw.Range(c, c.Int(tf.Int32, 0), c.Minus(rank, c.Int(tf.Int32, 2)), one)
	inner := c.Plus(c.Ints(tf.Int32, -1, -2), rank)
	return raw.Transpose(c, t, c.Join(outer, inner))
}

func (c *Context) adjoint(t tf.Output) tf.Output { return c.Conj(c.transposed(t)) }

// identityLike is the identity matrix of the shape of square matrices t.
func (c *Context) identityLike(t tf.Output) tf.Output {
	return raw.MatrixDiag(c, c.OnesLike(raw.MatrixDiagPart(c, t)))
}

// asMatrix gives a tensor two more dimensions of 1, so that it scales matrices.
func (c *Context) asMatrix(t tf.Output) tf.Output { return c.column(c.column(t)) }

// lower and upper are the triangles of a matrix, with the diagonal.
func (c *Context) lower(t tf.Output) tf.Output {
	return raw.MatrixBandPart(c, t, c.Int(tf.Int64, -1), c.Int(tf.Int64, 0))
}

func (c *Context) upper(t tf.Output) tf.Output {
	return raw.MatrixBandPart(c, t, c.Int(tf.Int64, 0), c.Int(tf.Int64, -1))
}

// columns is t[..., from:to], rows t[..., from:to, :]. A negative bound counts
// from the end; a to of 0 is the end.
func (c *Context) columns(t tf.Output, from, to int64) tf.Output {
	end := int64(0)
	if to == 0 {
		end = 2
	}
	return raw.StridedSlice(c, t, c.Ints(tf.Int32, 0, from), c.Ints(tf.Int32, 0, to), c.Ints(tf.Int32, 1, 1),
		raw.WithEllipsisMask(1), raw.WithEndMask(end))
}

func (c *Context) rows(t tf.Output, from, to int64) tf.Output {
	end := int64(4)
	if to == 0 {
		end |= 2
	}
	return raw.StridedSlice(c, t, c.Ints(tf.Int32, 0, from, 0), c.Ints(tf.Int32, 0, to, 0), c.Ints(tf.Int32, 1, 1, 1),
		raw.WithEllipsisMask(1), raw.WithBeginMask(4), raw.WithEndMask(end))
}

// safeInverse is 1/x, and nearly zero where x is.
func (c *Context) safeInverse(x tf.Output) tf.Output {
	return c.Mul(x, c.Inverse(c.Shift(c.Mul(x, x), 1e-20)))
}

// gaps is the matrix F of a spectral decomposition: F[i,j] = 1/(e[j]-e[i]),
// and zero on the diagonal.
func (c *Context) gaps(e tf.Output) tf.Output {
	differences := c.Minus(raw.ExpandDims(c, e, c.Int(tf.Int32, -2)), c.column(e))
	return raw.MatrixSetDiag(c, c.safeInverse(differences), c.ZerosLike(e))
}

func init() {
	Register("MatrixInverse", func(c *Context) []Gradient { // -A⁻ᴴ G A⁻ᴴ
		inverse, adjoint := c.Output(0), c.AttrBool("adjoint")
		return dense(c.Neg(c.matMul(inverse, c.matMul(c.Grad(0), inverse, adjoint, !adjoint), !adjoint, false)))
	})
	Register("MatrixDeterminant", func(c *Context) []Gradient { // g det(A) A⁻ᴴ
		return dense(c.Mul(c.asMatrix(c.Mul(c.Grad(0), c.Output(0))), raw.MatrixInverse(c, c.Input(0), raw.WithAdjoint(true))))
	})
	Register("LogMatrixDeterminant", func(c *Context) []Gradient { // outputs: sign, log|det|
		return dense(c.Mul(c.asMatrix(c.Grad(1)), raw.MatrixInverse(c, c.Input(0), raw.WithAdjoint(true))))
	})
	Register("Cholesky", choleskyGrad)
	Register("MatrixSquareRoot", matrixSquareRootGrad)
	Register("MatrixSolve", func(c *Context) []Gradient {
		return c.solveGrad(func(c *Context, a, g tf.Output, adjoint bool) tf.Output {
			return raw.MatrixSolve(c, a, g, raw.WithAdjoint(adjoint))
		}, nil)
	})
	Register("MatrixTriangularSolve", func(c *Context) []Gradient {
		part, low := c.upper, c.AttrBool("lower")
		if low {
			part = c.lower
		}
		return c.solveGrad(func(c *Context, a, g tf.Output, adjoint bool) tf.Output {
			return raw.MatrixTriangularSolve(c, a, g, raw.WithAdjoint(adjoint), raw.WithLower(low))
		}, part)
	})
	Register("BandedTriangularSolve", func(c *Context) []Gradient {
		// A's bands are its rows: the diagonal and those below or above it.
		low := c.AttrBool("lower")
		width := c.Minus(c.Dim(c.Shape(c.Input(0)), -2), c.Int(tf.Int32, 1))
		bounds := []tf.Output{c.Int(tf.Int32, 0), width}
		if low {
			bounds = []tf.Output{c.Neg(width), c.Int(tf.Int32, 0)}
		}
		k := raw.Pack(c, bounds)
		return c.solveGrad(func(c *Context, a, g tf.Output, adjoint bool) tf.Output {
			return raw.BandedTriangularSolve(c, a, g, raw.WithAdjoint(adjoint), raw.WithLower(low))
		}, func(full tf.Output) tf.Output {
			return raw.MatrixDiagPartV3(c, full, k, c.NumberLike(0, full), raw.WithAlign("LEFT_RIGHT"))
		})
	})
	Register("MatrixSolveLs", matrixSolveLsGrad, 2)
	RegisterCheck("MatrixSolveLs", func(op *tf.Operation) error {
		if fast, err := bridge.AttrBool(op, "fast"); err == nil && !fast {
			return fmt.Errorf("its gradient is known for fast=true only")
		}
		return innerShapeKnown(op)
	})
	Register("SelfAdjointEigV2", selfAdjointEigGrad)
	Register("Eig", eigGrad)
	Register("Qr", qrGrad)
	RegisterCheck("Qr", func(op *tf.Operation) error {
		if err := innerShapeKnown(op); err != nil {
			return err
		}
		m, n := innerShape(bridge.ShapeOf(bridge.Input(op, 0)))
		if full, err := bridge.AttrBool(op, "full_matrices"); err == nil && full && m > n {
			return fmt.Errorf("with full_matrices and more rows than columns (%d, %d) it has no gradient", m, n)
		}
		return nil
	})
	Register("Svd", svdGrad)
	RegisterCheck("Svd", func(op *tf.Operation) error {
		if uv, err := bridge.AttrBool(op, "compute_uv"); err == nil && !uv {
			return nil
		}
		if err := innerShapeKnown(op); err != nil {
			return err
		}
		m, n := innerShape(bridge.ShapeOf(bridge.Input(op, 0)))
		if full, err := bridge.AttrBool(op, "full_matrices"); err == nil && full && (m-n > 1 || n-m > 1) {
			return fmt.Errorf("with full_matrices its rows and columns (%d, %d) may differ by at most 1", m, n)
		}
		return nil
	})
	Register("TridiagonalMatMul", tridiagonalMatMulGrad)
	Register("TridiagonalSolve", tridiagonalSolveGrad)
	registerDiagonals()
}

// innerShapeKnown is the check of gradients that differ by the matrix's shape.
func innerShapeKnown(op *tf.Operation) error {
	m, n := innerShape(bridge.ShapeOf(bridge.Input(op, 0)))
	if m < 0 || n < 0 {
		return fmt.Errorf("the number of rows and columns of its input must be known before a run")
	}
	return nil
}

// innerShape is the number of rows and columns, -1 where unknown.
func innerShape(s bridge.Shape) (rows, columns int64) {
	if len(s) < 2 {
		return -1, -1
	}
	return s[len(s)-2], s[len(s)-1]
}

// solveGrad is the gradient of X = A⁻¹B, or A⁻ᴴB with the adjoint attribute:
// by B it is B' = A⁻ᴴG, by A -B'Xᴴ, or -XB'ᴴ with the adjoint; part keeps the
// part of that matrix which the operation reads.
func (c *Context) solveGrad(solve func(c *Context, a, g tf.Output, adjoint bool) tf.Output, part func(tf.Output) tf.Output) []Gradient {
	a, b, x, adjoint := c.Input(0), c.Input(1), c.Output(0), c.AttrBool("adjoint")
	byB := solve(c, a, c.Grad(0), !adjoint)
	left, right := byB, x
	if adjoint {
		left, right = x, byB
	}
	byA := c.Neg(c.matMul(left, right, false, true))
	if part != nil {
		byA = part(byA)
	}
	return dense(c.ReduceTo(byA, a), c.ReduceTo(byB, b))
}

// choleskyGrad: with A = LLᴴ, ½(S + Sᴴ), S = L⁻ᴴ Φ(LᴴG) L⁻¹, where Φ takes the
// lower triangle and halves its diagonal.
func choleskyGrad(c *Context) []Gradient {
	l := c.Output(0)
	inverse := raw.MatrixTriangularSolve(c, l, c.identityLike(l))
	phi := c.matMul(l, c.Grad(0), true, false)
	phi = c.lower(raw.MatrixSetDiag(c, phi, c.Times(0.5, raw.MatrixDiagPart(c, phi))))
	s := c.matMul(c.matMul(inverse, phi, true, false), inverse, false, false)
	return dense(c.Times(0.5, c.Plus(s, c.adjoint(s))))
}

// matrixSquareRootGrad solves the Sylvester equation RᵀX + XRᵀ = G for X by
// one linear system in the elements of X, with Kronecker products.
func matrixSquareRootGrad(c *Context) []Gradient {
	r := c.Output(0)
	shape := c.Shape(r)
	n := c.Reshape(c.Dim(shape, -1), c.Ints(tf.Int32, 1))
	n2 := c.Mul(n, n)
	batch := c.Part(shape, 0, -2)
	eye := c.identityLike(r)
	// [..., i, j] ⊗ [..., k, l] = [..., ik, jl]
	at := func(t tf.Output, axes ...int64) tf.Output {
		for _, axis := range axes {
			t = raw.ExpandDims(c, t, c.Int(tf.Int32, axis))
		}
		return t
	}
	kronecker := func(a, b tf.Output) tf.Output {
		return raw.Reshape(c, c.Mul(at(a, -1, -3), at(b, -2, -4)), c.Join(batch, n2, n2))
	}
	system := c.Plus(kronecker(eye, c.transposed(r)), kronecker(r, eye))
	g := raw.Reshape(c, c.transposed(c.Grad(0)), c.Join(batch, n2, c.Ints(tf.Int32, 1)))
	return dense(c.transposed(raw.Reshape(c, raw.MatrixSolve(c, system, g), shape)))
}

// matrixSolveLsGrad: X = (AᵀA + λI)⁻¹AᵀB where A has at least as many rows as
// columns, Aᵀ(AAᵀ + λI)⁻¹B where it has fewer. C is the inverse in it.
func matrixSolveLsGrad(c *Context) []Gradient {
	a, b, x, g := c.Input(0), c.Input(1), c.Output(0), c.Grad(0)
	m, n := innerShape(c.Static(a))
	tall := m >= n
	gram := c.matMul(a, a, tall, !tall)
	gram = c.Plus(gram, c.Mul(c.Cast(c.Input(2), a.DataType()), c.identityLike(gram)))
	chol := raw.Cholesky(c, gram)
	inverse := func(t tf.Output) tf.Output {
		return raw.MatrixTriangularSolve(c, chol, raw.MatrixTriangularSolve(c, chol, t), raw.WithAdjoint(true))
	}
	if tall { // Z = CG: by B it is AZ, by A -A(XZᵀ + ZXᵀ) + BZᵀ
		z := inverse(g)
		xz := c.matMul(x, z, false, true)
		byA := c.Minus(c.matMul(b, z, false, true), c.matMul(a, c.Plus(xz, c.transposed(xz)), false, false))
		return dense(byA, c.matMul(a, z, false, false))
	}
	// by B it is B' = CAG, by A CB(G - AᵀB')ᵀ - B'(CB)ᵀA
	byB := inverse(c.matMul(a, g, false, false))
	cb := inverse(b)
	rest := c.Minus(g, c.matMul(a, byB, true, false))
	byA := c.Minus(c.matMul(cb, rest, false, true), c.matMul(byB, c.matMul(cb, a, true, false), false, false))
	return dense(byA, byB)
}

// selfAdjointEigGrad: V (diag(gₑ) + F∘VᴴG) Vᴴ. The kernel reads the lower
// triangle alone, so the gradient by the upper is folded into it.
func selfAdjointEigGrad(c *Context) []Gradient {
	e, v := c.Output(0), c.Output(1)
	inner := raw.MatrixDiag(c, c.Grad(0))
	if c.AttrBool("compute_v") {
		inner = c.Plus(inner, c.Mul(c.gaps(e), c.matMul(v, c.Grad(1), true, false)))
	} else {
		_, v = raw.SelfAdjointEigV2(c, c.Input(0))
	}
	s := c.matMul(v, c.matMul(inner, v, false, true), false, false)
	s = c.lower(c.Plus(s, c.adjoint(s)))
	return dense(raw.MatrixSetDiag(c, s, c.Times(0.5, raw.MatrixDiagPart(c, s))))
}

// eigGrad: V⁻ᴴ (diag(gₑ) + F̄∘(VᴴG - VᴴV diag(Re VᴴG))) Vᴴ, for distinct
// eigenvalues; C. Boeddeker et al., arXiv:1701.00392, equation 4.77.
func eigGrad(c *Context) []Gradient {
	e, v := c.Output(0), c.Output(1)
	inner := raw.MatrixDiag(c, c.Grad(0))
	if c.AttrBool("compute_v") {
		vg := c.matMul(v, c.Grad(1), true, false)
		real := raw.Real(c, vg, raw.WithTout(realType(vg.DataType())))
		scale := raw.MatrixDiag(c, raw.MatrixDiagPart(c, c.Cast(real, vg.DataType())))
		free := c.Minus(vg, c.matMul(c.matMul(v, v, true, false), scale, false, false))
		inner = c.Plus(inner, c.Mul(c.Conj(c.gaps(e)), free))
	} else {
		_, v = raw.Eig(c, c.Input(0), e.DataType())
	}
	vh := c.adjoint(v)
	return dense(c.Cast(raw.MatrixSolve(c, vh, c.matMul(inner, vh, false, false)), c.Input(0).DataType()))
}

// realType is the type of the real part of a complex type.
func realType(dt tf.DataType) tf.DataType {
	if dt == tf.Complex128 {
		return tf.Double
	}
	return tf.Float
}

// qrGrad treats A = [X Y], X square or deep, as X = QU and Y = QV: with
// R = [U V], the gradient by V is that of Y's projection.
func qrGrad(c *Context) []Gradient {
	q, r, gq, gr := c.Output(0), c.Output(1), c.Grad(0), c.Grad(1)
	m, n := innerShape(c.Static(c.Input(0)))
	if m >= n {
		return dense(qrDeep(c, q, r, gq, gr))
	}
	y, u := c.columns(c.Input(0), m, 0), c.columns(r, 0, m)
	gu, gv := c.columns(gr, 0, m), c.columns(gr, m, 0)
	byX := qrDeep(c, q, u, c.Plus(gq, c.matMul(y, gv, false, true)), gu)
	return dense(raw.ConcatV2(c, []tf.Output{byX, c.matMul(q, gv, false, false)}, c.Int(tf.Int32, -1)))
}

// qrDeep is the gradient for at least as many rows as columns:
//
//	Q (Gr + tril(P - Pᴴ) R⁻ᴴ) + (Gq - Q QᴴGq) R⁻ᴴ, with P = QᴴGq + R Grᴴ
func qrDeep(c *Context, q, r, gq, gr tf.Output) tf.Output {
	overR := func(t tf.Output) tf.Output { // t R⁻ᴴ
		return c.adjoint(raw.MatrixTriangularSolve(c, r, c.adjoint(t), raw.WithLower(false)))
	}
	qg, rg := c.matMul(q, gq, true, false), c.matMul(r, gr, false, true)
	p := c.Plus(c.Minus(qg, c.adjoint(qg)), c.Minus(rg, c.adjoint(rg)))
	inside := c.matMul(q, c.Plus(gr, overR(c.lower(p))), false, false)
	outside := overR(c.Minus(gq, c.matMul(q, qg, false, false)))
	grad := c.Plus(inside, outside)
	if q.Op != nil && bridge.IsComplex(q.DataType()) {
		// R's diagonal is real, so the imaginary part there is left to Q.
		diagonal := raw.MatrixDiagPart(c, c.Minus(rg, c.adjoint(qg)))
		real := raw.Real(c, diagonal, raw.WithTout(realType(q.DataType())))
		imaginary := raw.MatrixDiag(c, c.Minus(diagonal, c.Cast(real, q.DataType())))
		grad = c.Plus(grad, overR(c.matMul(q, c.Conj(imaginary), false, false)))
	}
	return grad
}

// svdGrad: with A = U S Vᴴ, more columns than rows (else of Aᴴ), F from the
// squared singular values and V = [V₁ V₂]:
//
//	U (diag(gₛ) + (Fu + Fuᴴ) S + S (Fv + Fvᴴ)) V₁ᴴ + U S⁻¹ (Gvᴴ - Gvᴴ V₁V₁ᴴ - V₁ᴴG₂ V₂ᴴ)
//
// where Fu = F∘UᴴGu and Fv = F∘V₁ᴴGv.
func svdGrad(c *Context) []Gradient {
	a := c.Input(0)
	gs := raw.MatrixDiag(c, c.Cast(c.Grad(0), a.DataType()))
	if !c.AttrBool("compute_uv") {
		_, u, v := raw.Svd(c, a)
		return dense(c.matMul(u, c.matMul(gs, v, false, true), false, false))
	}
	s := c.Cast(c.Output(0), a.DataType())
	u, v, gu, gv := c.Output(1), c.Output(2), c.Grad(1), c.Grad(2)
	m, n := innerShape(c.Static(a))
	wide := m <= n
	if !wide {
		m, n, u, v, gu, gv = n, m, v, u, gv, gu
	}
	v1, gv1 := c.columns(v, 0, m), c.columns(gv, 0, m)
	f := c.gaps(c.Square(s))
	fu := c.Mul(f, c.matMul(u, gu, true, false))
	vgv := c.matMul(v1, gv1, true, false)
	fv := c.Mul(f, vgv)
	sMat, sInverse := raw.MatrixDiag(c, s), raw.MatrixDiag(c, c.safeInverse(s))
	inner := c.Plus(c.Plus(gs, c.matMul(c.Plus(fu, c.adjoint(fu)), sMat, false, false)),
		c.matMul(sMat, c.Plus(fv, c.adjoint(fv)), false, false))
	grad := c.matMul(u, c.matMul(inner, v1, false, true), false, false)
	if m != n {
		gv1H := c.adjoint(gv1)
		rest := c.Minus(gv1H, c.matMul(c.matMul(gv1H, v1, false, false), v1, false, true))
		if c.AttrBool("full_matrices") {
			v2, gv2 := c.columns(v, m, n), c.columns(gv, m, n)
			rest = c.Minus(rest, c.matMul(c.matMul(v1, gv2, true, false), v2, false, true))
		}
		grad = c.Plus(grad, c.matMul(c.matMul(u, sInverse, false, false), rest, false, false))
	}
	if a.Op != nil && bridge.IsComplex(a.DataType()) {
		// The phase that U and V share: the imaginary part of V₁ᴴGv's diagonal.
		l := c.Mul(c.identityLike(vgv), vgv)
		phase := c.matMul(sInverse, c.Minus(c.adjoint(l), l), false, false)
		grad = c.Plus(grad, c.Times(0.5, c.matMul(u, c.matMul(phase, v1, false, true), false, false)))
	}
	if !wide {
		grad = c.adjoint(grad)
	}
	return dense(grad)
}

// up and down move the rows of a matrix by one and fill with zeros.
func (c *Context) up(t tf.Output) tf.Output {
	return raw.ConcatV2(c, []tf.Output{c.rows(t, 1, 0), c.ZerosLike(c.rows(t, 0, 1))}, c.Int(tf.Int32, -2))
}

func (c *Context) down(t tf.Output) tf.Output {
	return raw.ConcatV2(c, []tf.Output{c.ZerosLike(c.rows(t, 0, 1)), c.rows(t, 0, -1)}, c.Int(tf.Int32, -2))
}

// tridiagonalMatMulGrad: the diagonals above, on and below are [..., 1, n], and
// row i of the product is above[i]·x[i+1] + on[i]·x[i] + below[i]·x[i-1].
func tridiagonalMatMulGrad(c *Context) []Gradient {
	x, g := c.Conj(c.Input(3)), c.Grad(0)
	sum := func(t tf.Output) tf.Output { // over the columns, as a row
		return raw.ExpandDims(c, raw.Sum(c, t, c.Ints(tf.Int32, -1)), c.Int(tf.Int32, -2))
	}
	above, on, below := c.adjoint(c.Input(0)), c.adjoint(c.Input(1)), c.adjoint(c.Input(2))
	byX := c.Plus(c.Plus(c.down(c.Mul(above, g)), c.Mul(on, g)), c.up(c.Mul(below, g)))
	return dense(sum(c.Mul(c.up(x), g)), sum(c.Mul(x, g)), sum(c.Mul(c.down(x), g)), byX)
}

// tridiagonalSolveGrad: as solveGrad, of whose matrix by A three diagonals are
// kept; they are the rows [above, on, below] of the first input.
func tridiagonalSolveGrad(c *Context) []Gradient {
	diagonals, x := c.Input(0), c.Output(0)
	last := c.Int(tf.Int32, -1)
	above, on, below := c.rows(diagonals, 0, 1), c.rows(diagonals, 1, 2), c.rows(diagonals, 2, 3)
	zero := c.ZerosLike(c.columns(on, 0, 1))
	flipped := raw.ConcatV2(c, []tf.Output{
		raw.ConcatV2(c, []tf.Output{c.columns(below, 1, 0), zero}, last),
		on,
		raw.ConcatV2(c, []tf.Output{zero, c.columns(above, 0, -1)}, last),
	}, c.Int(tf.Int32, -2))
	byB := firstOf(c.sibling("TridiagonalSolve", []string{"partial_pivoting", "perturb_singular"}, flipped, c.Grad(0)))
	row := func(y tf.Output) tf.Output {
		return raw.ExpandDims(c, raw.Sum(c, c.Mul(byB, y), c.Ints(tf.Int32, -1)), c.Int(tf.Int32, -2))
	}
	byA := raw.ConcatV2(c, []tf.Output{row(c.up(x)), row(x), row(c.down(x))}, c.Int(tf.Int32, -2))
	return dense(c.Neg(byA), byB)
}

// registerDiagonals covers what reads, writes or makes diagonals: each of the
// three is the gradient of another.
func registerDiagonals() {
	Register("MatrixBandPart", func(c *Context) []Gradient {
		return dense(raw.MatrixBandPart(c, c.Grad(0), c.Input(1), c.Input(2)))
	})
	Register("MatrixDiag", func(c *Context) []Gradient { return dense(raw.MatrixDiagPart(c, c.Grad(0))) })
	Register("MatrixDiagPart", func(c *Context) []Gradient {
		x, g := c.Input(0), c.Grad(0)
		if m, n := innerShape(c.Static(x)); m >= 0 && m == n {
			return dense(raw.MatrixDiag(c, g))
		}
		return dense(raw.MatrixSetDiag(c, c.ZerosLike(x), g))
	})
	Register("MatrixSetDiag", func(c *Context) []Gradient {
		g := c.Grad(0)
		return dense(raw.MatrixSetDiag(c, g, c.ZerosLike(c.Input(1))), raw.MatrixDiagPart(c, g))
	})
	// The later versions take several diagonals, k. V2 aligns their rows to
	// the left, V3 as its attribute says.
	align := func(c *Context) raw.Attr {
		if bridge.HasAttr(c.Op, "align") {
			return raw.WithAlign(c.AttrString("align"))
		}
		return raw.WithAlign("LEFT_LEFT")
	}
	part := func(c *Context, g, k tf.Output) tf.Output {
		return raw.MatrixDiagPartV3(c, g, k, c.NumberLike(0, g), align(c))
	}
	for _, version := range []string{"V2", "V3"} {
		// Inputs: diagonal, k, rows, columns, padding.
		Register("MatrixDiag"+version, func(c *Context) []Gradient {
			return dense(part(c, c.Grad(0), c.Input(1)))
		}, 4)
		// Inputs: x, k, padding.
		Register("MatrixDiagPart"+version, func(c *Context) []Gradient {
			x, g := c.Input(0), c.Grad(0)
			rows, columns := c.Dim(c.Shape(x), -2), c.Dim(c.Shape(x), -1)
			if m, n := innerShape(c.Static(x)); m >= 0 && n >= 0 {
				rows, columns = c.Int(tf.Int32, m), c.Int(tf.Int32, n)
			} else if k, known := c.ConstInts(c.Input(1)); known && len(k) > 0 && k[0] == k[len(k)-1] {
				// Of sizes that it does not know, MatrixDiagV3 infers wrong ones from
				// one diagonal, and MatrixSetDiagV3 from a band.
				return dense(raw.MatrixSetDiagV3(c, c.ZerosLike(x), g, c.Input(1), align(c)))
			}
			return dense(raw.MatrixDiagV3(c, g, c.Input(1), rows, columns, c.NumberLike(0, g), align(c)))
		}, 2)
		// Inputs: x, diagonal, k.
		Register("MatrixSetDiag"+version, func(c *Context) []Gradient {
			g := c.Grad(0)
			return dense(raw.MatrixSetDiagV3(c, g, c.ZerosLike(c.Input(1)), c.Input(2), align(c)), part(c, g, c.Input(2)))
		})
	}
}
