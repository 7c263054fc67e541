"""The Triton kernels of `fused.py`, which says what they compute."""

import triton
import triton.language as tl


@triton.jit
def _rows(pointer, t, c, real, R: tl.constexpr):
    """pointer[t, c] in fp32, 0 outside."""
    return tl.load(pointer + t[:, None] * R + c[None, :], mask=real[:, None] & (c < R)[None, :], other=0.0)


@triton.jit(do_not_specialize=["frames"])
def _forward_kernel(
    u, past, future, z, weight, table, project_bias, gate, gate_bias, sign, shift, g, alpha, y, frames,
    R: tl.constexpr, D: tl.constexpr, TILES: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_D: tl.constexpr,
    INNER: tl.constexpr, BLOCK: tl.constexpr, TWO_SIDED: tl.constexpr, BLEND: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    t = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    real = t < frames
    c, d = tl.arange(0, BLOCK_R), tl.arange(0, BLOCK_D)
    inside = real[:, None] & (d < D)[None, :]
    whole = t[:, None] * D + d[None, :]
    operand = table.dtype.element_ty
    z_c, p_c = _rows(z, t, c, real, R), _rows(past, t, c, real, R)
    if TWO_SIDED:
        q_c = _rows(future, t, c, real, R)
    bias = tl.load(project_bias + d, mask=d < D, other=0.0).to(tl.float32)
    total = bias[None, :] * tl.load(weight + t, mask=real, other=0.0)[:, None]
    for m in range(TILES):
        e = tl.where(c < R, (c + tl.load(shift + m)) % R, R)
        s = tl.load(sign + m * R + c, mask=c < R, other=0.0)[None, :]
        z_e, p_e = _rows(z, t, e, real, R), _rows(past, t, e, real, R)
        if TWO_SIDED:
            tile = (p_c + s * q_c) * z_e + (s * p_e + _rows(future, t, e, real, R)) * z_c
        else:
            tile = p_c * z_e + s * p_e * z_c
        w = tl.load(
            table + m * R * D + c[:, None] * D + d[None, :], mask=(c < R)[:, None] & (d < D)[None, :], other=0.0
        )
        total = tl.dot(tile.to(operand), w, total, input_precision=PRECISION)
    tl.store(g + whole, total.to(operand), mask=inside)
    tl.debug_barrier()  # g is read back by columns, by other threads of this program
    logit = (
        tl.zeros((BLOCK, BLOCK_D), tl.float32) + tl.load(gate_bias + d, mask=d < D, other=0.0).to(tl.float32)[None, :]
    )
    for start in range(0, D, INNER):
        k = start + tl.arange(0, INNER)
        some = real[:, None] & (k < D)[None, :]
        at = t[:, None] * D + k[None, :]
        fits = (k < D)[:, None] & (d < D)[None, :]
        of_u = tl.load(gate + d[None, :] * (2 * D) + k[:, None], mask=fits, other=0.0)
        of_g = tl.load(gate + d[None, :] * (2 * D) + D + k[:, None], mask=fits, other=0.0)
        logit = tl.dot(tl.load(u + at, mask=some, other=0.0).to(operand), of_u, logit, input_precision=PRECISION)
        logit = tl.dot(tl.load(g + at, mask=some, other=0.0), of_g, logit, input_precision=PRECISION)
    a = 1 / (1 + tl.exp(-logit))
    tl.store(alpha + whole, a.to(operand), mask=inside)
    u_d = tl.load(u + whole, mask=inside, other=0.0).to(tl.float32)
    if BLEND:
        out = total + a * (u_d - total)
    else:
        out = (1 - a) * (total - u_d)
    tl.store(y + whole, out.to(y.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["frames"])
def _backward_kernel(
    grad, u, past, future, z, table, gate, sign, shift, g, alpha, d_logit, d_g, d_u, d_past, d_future, d_z, frames,
    R: tl.constexpr, D: tl.constexpr, TILES: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_D: tl.constexpr,
    INNER: tl.constexpr, BLOCK: tl.constexpr, TWO_SIDED: tl.constexpr, BLEND: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    t = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    real = t < frames
    c, d = tl.arange(0, BLOCK_R), tl.arange(0, BLOCK_D)
    inside = real[:, None] & (d < D)[None, :]
    whole = t[:, None] * D + d[None, :]
    operand = table.dtype.element_ty
    a = tl.load(alpha + whole, mask=inside, other=0.0).to(tl.float32)
    dy = tl.load(grad + whole, mask=inside, other=0.0).to(tl.float32)
    g_d = tl.load(g + whole, mask=inside, other=0.0).to(tl.float32)
    u_d = tl.load(u + whole, mask=inside, other=0.0).to(tl.float32)
    into_logit = dy * (u_d - g_d) * a * (1 - a)
    tl.store(d_logit + whole, into_logit.to(operand), mask=inside)
    tl.debug_barrier()  # read back by columns below
    into_g = (1 - a) * dy
    if BLEND:
        into_u = a * dy
    else:
        into_u = (a - 1) * dy
    for start in range(0, D, INNER):
        k = start + tl.arange(0, INNER)
        some = real[:, None] & (k < D)[None, :]
        fits = (k < D)[:, None] & (d < D)[None, :]
        of_logit = tl.load(d_logit + t[:, None] * D + k[None, :], mask=some, other=0.0)
        of_u = tl.load(gate + k[:, None] * (2 * D) + d[None, :], mask=fits, other=0.0)
        of_g = tl.load(gate + k[:, None] * (2 * D) + D + d[None, :], mask=fits, other=0.0)
        into_u = tl.dot(of_logit, of_u, into_u, input_precision=PRECISION)
        into_g = tl.dot(of_logit, of_g, into_g, input_precision=PRECISION)
    tl.store(d_u + whole, into_u.to(d_u.dtype.element_ty), mask=inside)
    from_g = into_g.to(operand)
    tl.store(d_g + whole, from_g, mask=inside)
    into_z, into_p = tl.zeros((BLOCK, BLOCK_R), tl.float32), tl.zeros((BLOCK, BLOCK_R), tl.float32)
    if TWO_SIDED:
        into_q = tl.zeros((BLOCK, BLOCK_R), tl.float32)
    fits = (d < D)[:, None] & (c < R)[None, :]
    for m in range(TILES):
        step = tl.load(shift + m)
        # column c of the tile as its first index (partner e further on), and as its second (partner b further back)
        e = tl.where(c < R, (c + step) % R, R)
        b = tl.where(c < R, (c + R - step) % R, R)
        s_c = tl.load(sign + m * R + c, mask=c < R, other=0.0)[None, :]
        s_b = tl.load(sign + m * R + b, mask=c < R, other=0.0)[None, :]
        w_c = tl.load(table + m * R * D + c[None, :] * D + d[:, None], mask=fits, other=0.0)
        w_b = tl.load(table + m * R * D + b[None, :] * D + d[:, None], mask=fits, other=0.0)
        tile_c = tl.dot(from_g, w_c, input_precision=PRECISION)
        tile_b = tl.dot(
            from_g, w_b, input_precision=PRECISION
        )  # the same gradient turned by m columns, without a shuffle
        z_e, z_b = _rows(z, t, e, real, R), _rows(z, t, b, real, R)
        p_e, p_b = _rows(past, t, e, real, R), _rows(past, t, b, real, R)
        into_p += tile_c * z_e + tile_b * s_b * z_b
        if TWO_SIDED:
            q_e, q_b = _rows(future, t, e, real, R), _rows(future, t, b, real, R)
            into_q += tile_c * s_c * z_e + tile_b * z_b
            into_z += tile_c * (s_c * p_e + q_e) + tile_b * (p_b + s_b * q_b)
        else:
            into_z += tile_c * s_c * p_e + tile_b * p_b
    narrow = t[:, None] * R + c[None, :]
    here = real[:, None] & (c < R)[None, :]
    tl.store(d_past + narrow, into_p, mask=here)
    tl.store(d_z + narrow, into_z, mask=here)
    if TWO_SIDED:
        tl.store(d_future + narrow, into_q, mask=here)


@triton.jit(do_not_specialize=["frames", "steps"])
def _table_gradient_kernel(
    past, future, z, sign, shift, d_g, d_table, frames, steps,
    R: tl.constexpr, D: tl.constexpr, TILES: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK: tl.constexpr, TWO_SIDED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """d_table[part, m] = sum over the part's frames of tile_m^T d_g."""
    m, part = tl.program_id(0), tl.program_id(1)
    c, d = tl.arange(0, BLOCK_R), tl.arange(0, BLOCK_D)
    e = tl.where(c < R, (c + tl.load(shift + m)) % R, R)
    s = tl.load(sign + m * R + c, mask=c < R, other=0.0)[None, :]
    total = tl.zeros((BLOCK_R, BLOCK_D), tl.float32)
    for step in range(steps):
        t = (part.to(tl.int64) * steps + step) * BLOCK + tl.arange(0, BLOCK)
        real = t < frames
        z_c, z_e = _rows(z, t, c, real, R), _rows(z, t, e, real, R)
        p_c, p_e = _rows(past, t, c, real, R), _rows(past, t, e, real, R)
        if TWO_SIDED:
            tile = (p_c + s * _rows(future, t, c, real, R)) * z_e + (s * p_e + _rows(future, t, e, real, R)) * z_c
        else:
            tile = p_c * z_e + s * p_e * z_c
        gradient = tl.load(d_g + t[:, None] * D + d[None, :], mask=real[:, None] & (d < D)[None, :], other=0.0)
        total = tl.dot(tl.trans(tile).to(gradient.dtype), gradient, total, input_precision=PRECISION)
    place = ((part.to(tl.int64) * TILES + m) * R + c[:, None]) * D + d[None, :]
    tl.store(d_table + place, total, mask=(c < R)[:, None] & (d < D)[None, :])
