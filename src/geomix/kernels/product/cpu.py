"""CPU kernels for bilinear maps: vector LLVM IR printed from the table, compiled by llvmlite, cached on disk as object code (`cache.py`).

llvmlite is the compiler inside numba. It is used directly because numba spends seconds on type inference of a 1,000-term
body and relies on the loop vectoriser; here the vectors are explicit, a Cl(5) kernel compiles in a fraction of a second, no
C++ compiler is involved, and a warm start only maps an object file. Fastest is one row a component (component-major): vectors are
then plain loads. Tensors stored by batch entry are gathered element by element in registers, without a transposed copy.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import torch

from geomix.kernels.product import cache
from geomix.kernels.product.sums_of_products import SumsOfProducts, Term

LANES = {torch.float32: 16, torch.float64: 8}  # one AVX-512 register; LLVM splits it on narrower machines
TYPES = {torch.float32: "float", torch.float64: "double"}
THREAD_LANES = 16384  # batch entries worth a thread of their own


def llvm_ir(sums: SumsOfProducts, dtype: torch.dtype, by_entry: frozenset[str] = frozenset()) -> str:
    """The kernel as LLVM IR: void kernel(pointers of inputs and outputs, strides of the same, n), n >= LANES.

    A stride is the distance between components, or, for the tensors named in `by_entry`, whose components are adjacent, the
    distance between batch entries.

    The last vector of a batch that is no multiple of LANES overlaps the one before it: outputs never alias inputs, so
    computing an entry twice is harmless, and no scalar tail is needed.
    """
    body = _Body(dtype, by_entry)
    arguments = [*sums.inputs, *sums.outputs]
    for x in arguments:
        if x in by_entry:
            body.entries(x)
    for x, size in sums.inputs.items():
        for c in range(size):
            body.load(x, c)
    for x, components in sums.outputs.items():
        for c, terms in enumerate(components):
            body.store(x, c, body.sum_of_products(f"%{x}_{c}", terms))
    pointers = ", ".join(
        [f"ptr noalias %{x}" for x in arguments] + [f"i64 %stride_{x}" for x in arguments] + ["i64 %n"]
    )
    lines = [
        f"declare {body.vector} @{body.fma}({body.vector}, {body.vector}, {body.vector})",
        "declare i64 @llvm.smin.i64(i64, i64)",
        f"define void @kernel({pointers}) {{",
        "entry:",
        f"  %last = sub i64 %n, {body.lanes}",
        "  br label %loop",
        "loop:",
        "  %t = phi i64 [ 0, %entry ], [ %next, %loop ]",
        "  %at = call i64 @llvm.smin.i64(i64 %t, i64 %last)",
        *body.lines,
        f"  %next = add i64 %t, {body.lanes}",
        "  %more = icmp slt i64 %next, %n",
        "  br i1 %more, label %loop, label %done",
        "done:",
        "  ret void",
        "}",
    ]
    return "\n".join(lines) + "\n"


class _Body:
    """Lines of the loop's body, for `lanes` batch entries that begin at %at."""

    def __init__(self, dtype: torch.dtype, by_entry: frozenset[str]) -> None:
        self.lanes, self.scalar, self.bytes = LANES[dtype], TYPES[dtype], dtype.itemsize
        self.vector = f"<{self.lanes} x {self.scalar}>"
        self.fma = f"llvm.fma.v{self.lanes}f{8 * dtype.itemsize}"
        self.by_entry = by_entry
        self.lines: list[str] = []

    def entries(self, x: str) -> None:
        """The address of each batch entry of a tensor whose components are adjacent."""
        for lane in range(self.lanes):
            self.lines += [
                f"  %t_{x}_{lane} = add i64 %at, {lane}",
                f"  %i_{x}_{lane} = mul i64 %t_{x}_{lane}, %stride_{x}",
                f"  %e_{x}_{lane} = getelementptr inbounds {self.scalar}, ptr %{x}, i64 %i_{x}_{lane}",
            ]

    def address(self, x: str, c: int) -> str:
        """Where a component's vector begins."""
        self.lines += [
            f"  %o_{x}_{c} = mul i64 %stride_{x}, {c}",
            f"  %i_{x}_{c} = add i64 %o_{x}_{c}, %at",
            f"  %p_{x}_{c} = getelementptr inbounds {self.scalar}, ptr %{x}, i64 %i_{x}_{c}",
        ]
        return f"%p_{x}_{c}"

    def element(self, x: str, c: int, lane: int) -> str:
        """Where a component of one batch entry is."""
        self.lines.append(f"  %p_{x}_{c}_{lane} = getelementptr inbounds {self.scalar}, ptr %e_{x}_{lane}, i64 {c}")
        return f"%p_{x}_{c}_{lane}"

    def load(self, x: str, c: int) -> None:
        """Component c of x as the vector %x_c."""
        vector, scalar = self.vector, self.scalar
        if x not in self.by_entry:
            self.lines.append(f"  %{x}_{c} = load {vector}, ptr {self.address(x, c)}, align {self.bytes}")
            return
        value = "poison"
        for lane in range(self.lanes):
            name = f"%{x}_{c}" if lane == self.lanes - 1 else f"%v_{x}_{c}_{lane}"
            place = self.element(x, c, lane)
            self.lines += [
                f"  %l_{x}_{c}_{lane} = load {scalar}, ptr {place}, align {self.bytes}",
                f"  {name} = insertelement {vector} {value}, {scalar} %l_{x}_{c}_{lane}, i32 {lane}",
            ]
            value = name

    def sum_of_products(self, name: str, terms: Iterable[Term]) -> str:
        """The name of a vector that holds the sum of signed products."""
        vector, value = self.vector, "zeroinitializer"
        for count, (sign, (u, i), (v, j)) in enumerate(terms):
            result, factor = f"{name}_{count}", f"%{u}_{i}"
            if sign < 0:
                self.lines.append(f"  {result}_m = fneg {vector} {factor}")
                factor = f"{result}_m"
            form = f"fmul {vector} {factor}, %{v}_{j}"
            if count:
                form = f"call {vector} @{self.fma}({vector} {factor}, {vector} %{v}_{j}, {vector} {value})"
            self.lines.append(f"  {result} = {form}")
            value = result
        return value

    def store(self, x: str, c: int, value: str) -> None:
        """Write a vector to component c of x."""
        vector, scalar = self.vector, self.scalar
        if x not in self.by_entry:
            self.lines.append(f"  store {vector} {value}, ptr {self.address(x, c)}, align {self.bytes}")
            return
        for lane in range(self.lanes):
            self.lines.append(f"  %s_{x}_{c}_{lane} = extractelement {vector} {value}, i32 {lane}")
            place = self.element(x, c, lane)
            self.lines.append(f"  store {scalar} %s_{x}_{c}_{lane}, ptr {place}, align {self.bytes}")


# one compilation at a time: LLVM's and this module's caches are shared by all threads
_lock = threading.RLock()


@lru_cache(maxsize=1)
def _target():
    """(llvmlite.binding, target machine of this host, string that names compiler and machine)."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    if "+avx512f" in features:
        features += ",-prefer-256-bit"
    machine = llvm.Target.from_default_triple().create_target_machine(cpu=cpu, features=features, opt=3, jit=True)
    return llvm, machine, f"{llvm.llvm_version_info} {cpu} {features}"


class Kernel:
    """Compiled sums of products: call it with addresses, strides and the number of entries. It owns its code, which lives as long."""

    def __init__(self, code: bytes, tensors: int) -> None:
        llvm = _target()[0]
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine_for_engine(llvm))
        self._engine.add_object_file(llvm.object_file.ObjectFileRef.from_data(code))
        self._engine.finalize_object()
        kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * tensors, *[ctypes.c_int64] * (tensors + 1))
        self._function = kind(self._engine.get_function_address("kernel"))

    def __call__(self, *arguments: int) -> None:
        self._function(*arguments)


def compile_sums(sums_key: tuple, dtype: torch.dtype, by_entry: frozenset[str] = frozenset()) -> Kernel:
    """The kernel of sums of products; `sums_key` is (maker, table), as `sums_of_products.forward_sums` and its table. For any thread."""
    with _lock:
        return _compile(sums_key, dtype, by_entry)


@lru_cache(maxsize=512)
def _compile(sums_key: tuple, dtype: torch.dtype, by_entry: frozenset[str]) -> Kernel:
    maker, table = sums_key
    sums = maker(table)
    host = _target()[2]
    ir = llvm_ir(sums, dtype, by_entry)
    name = f"{hashlib.sha256((host + ir).encode()).hexdigest()[:24]}.o"
    code = cache.load("cpu", name)
    if code is None:
        code = emit(ir)
        cache.store("cpu", name, code)
    return Kernel(code, len(sums.inputs) + len(sums.outputs))


def emit(ir: str) -> bytes:
    """LLVM IR to this machine's object code."""
    llvm, machine, _ = _target()
    module = llvm.parse_assembly(ir)
    module.verify()
    return machine.emit_object(module)


def machine_for_engine(llvm):
    """A target machine of its own for each engine, which takes it over and frees it."""
    return llvm.Target.from_default_triple().create_target_machine(jit=True)


def keep_freed_memory() -> bool:
    """Ask glibc to keep freed blocks of up to 32 MB in the process; returns whether it could.

    By default it gives them back, and the next tensor of that size pays a page fault for each 4 KB: a backward pass of Cl(3) at
    65,536 entries took three times as long. This concerns every CPU tensor of the process, hence a program's choice and not a
    side effect of a kernel.
    """
    trim_threshold, mmap_threshold = -1, -3  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD of malloc.h
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return bool(mallopt(mmap_threshold, 32 << 20)) and bool(mallopt(trim_threshold, 1 << 30))


@lru_cache(maxsize=1)
def _make_pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count() or 1)


def _pool() -> ThreadPoolExecutor:
    with _lock:
        return _make_pool()


def _after_fork() -> None:
    _make_pool.cache_clear()  # its threads did not come along
    _lock.release()


# no fork while another thread compiles: the child would find half of everything
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_after_fork)


def suits(x: torch.Tensor) -> bool:
    """Whether a tensor is plain fp32 or fp64 memory of the CPU, which is what a kernel reads and writes."""
    plain = type(x) in (torch.Tensor, torch.nn.Parameter) and not torch._C._functorch.is_functorch_wrapped_tensor(x)
    return plain and x.device.type == "cpu" and x.layout == torch.strided and x.dtype in LANES


def run(sums_key: tuple, inputs: tuple[torch.Tensor, ...], out: tuple[torch.Tensor, ...] | None = None):
    """Runs sums of products on inputs (components, N) of one dtype, fp32 or fp64; returns its outputs (c, N).

    Components may be rows or adjacent (the transpose of a contiguous (N, c)); other strides are copied first. Outputs are
    stored as the first input is, unless `out` is given. Batches of THREAD_LANES entries or more per thread are split
    over torch.get_num_threads() threads; the result does not depend on it. Threads and forked processes may call it at will.

    Raises ValueError for anything else than plain CPU tensors of one dtype and the shapes of the sums: a tensor on `meta`, of a fake
    mode or on a GPU has no memory here.
    """
    _check(sums_key, inputs, out)
    inputs = tuple(x.resolve_neg() for x in inputs)
    dtype, n = inputs[0].dtype, inputs[0].shape[1]
    maker, table = sums_key
    sums = maker(table)
    inputs = tuple(x if _stored_well(x) else x.contiguous() for x in inputs)
    if out is None:
        sizes = [len(components) for components in sums.outputs.values()]
        if inputs[0].stride(1) == 1:
            out = tuple(torch.empty(size, n, dtype=dtype, device="cpu") for size in sizes)
        else:
            out = tuple(torch.empty(n, size, dtype=dtype, device="cpu").t() for size in sizes)
    if n == 0:
        return out
    lanes = LANES[dtype]
    if n < lanes:  # shorter than one vector: work on a padded copy
        padded = tuple(torch.nn.functional.pad(x, (0, lanes - n)).contiguous() for x in inputs)
        for result, wide in zip(out, run(sums_key, padded), strict=True):
            result.copy_(wide[:, :n])
        return out
    tensors = [*inputs, *out]
    rows = [x.stride(1) == 1 for x in tensors]
    by_entry = frozenset(x for x, row in zip((*sums.inputs, *sums.outputs), rows, strict=True) if not row)
    function = compile_sums(sums_key, dtype, by_entry)
    strides = [x.stride(0 if row else 1) for x, row in zip(tensors, rows, strict=True)]
    parts = max(1, min(torch.get_num_threads(), n // THREAD_LANES))
    if parts == 1:
        function(*[x.data_ptr() for x in tensors], *strides, n)
        return out
    step = -(-n // parts // lanes) * lanes
    bounds = [(start, min(start + step, n)) for start in range(0, n, step)]
    if bounds[-1][1] - bounds[-1][0] < lanes:  # a sliver joins its neighbour
        bounds[-2:] = [(bounds[-2][0], n)]

    def part(start: int, stop: int) -> None:
        function(*[x.data_ptr() + start * x.stride(1) * dtype.itemsize for x in tensors], *strides, stop - start)

    jobs = [_pool().submit(part, *bound) for bound in bounds[1:]]
    part(*bounds[0])
    for job in jobs:
        job.result()
    return out


def _check(sums_key: tuple, inputs: tuple[torch.Tensor, ...], out: tuple[torch.Tensor, ...] | None) -> None:
    maker, table = sums_key
    sums = maker(table)
    first = inputs[0]
    sizes = [*sums.inputs.values(), *(len(components) for components in sums.outputs.values())]
    given = [*inputs, *(out or ())]
    for x, size in zip(given, sizes, strict=out is not None):
        if not suits(x) or x.dtype != first.dtype:
            raise ValueError(
                f"the CPU kernels of a product take plain fp32 or fp64 tensors of one type on the CPU, got {type(x).__name__} of "
                f"{x.dtype} on {x.device} beside {first.dtype}."
            )
        if x.dim() != 2 or x.shape != (size, first.shape[1]):
            raise ValueError(
                f"a CPU kernel of a product takes ({size}, {first.shape[1]}) numbers, got {tuple(x.shape)}."
            )
    for x in out or ():
        if not _stored_well(x):
            raise ValueError(f"an output of a CPU kernel lies by component or by entry, not at strides {x.stride()}.")


def _stored_well(x: torch.Tensor) -> bool:
    """Components are rows, or adjacent."""
    return x.stride(1) == 1 or (x.stride(0) == 1 and x.shape[0] > 1)
