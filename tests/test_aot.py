"""Reading the optimized programs of accelerators: the bytes that they move, and the tables."""

import json

import jax
import jax.numpy as jnp
import pytest

from benchmarks.aot import rows
from benchmarks.aot.traffic import moved_bytes

PROGRAM = """
HloModule jit_step

%fused (param_0: f32[1024,8], param_1: f32[1024,8]) -> f32[16,8] {
  %param_0 = f32[1024,8]{1,0:T(8,128)} parameter(0)
  %bitcast = f32[8192]{0:T(1024)} bitcast(%param_0)
  %slice.1 = f32[128]{0:T(128)} slice(%bitcast), slice={[0:8192:64]}
  ROOT %reshape = f32[16,8]{1,0:T(8,128)} reshape(%slice.1)
}

%seldom (a: f32[1024,8]) -> f32[] {
  %a = f32[1024,8]{1,0:T(8,128)} parameter(0)
  ROOT %sum = f32[] reduce(%a), to_apply=%add
}

%always (b: f32[1024,8]) -> f32[] {
  %b = f32[1024,8]{1,0:T(8,128)} parameter(0)
  ROOT %zero = f32[] constant(0)
}

ENTRY %main (p: f32[1024,8], q: bf16[1024,8]) -> f32[] {
  %p = f32[1024,8]{1,0:T(8,128)} parameter(0)
  %q = bf16[1024,8]{1,0:T(8,128)(2,1)} parameter(1), metadata={op_name="q"}
BODY
}
"""
WHOLE, HALF = 1024 * 8 * 4, 1024 * 8 * 2


@pytest.mark.parametrize(
    ("line", "moved"),
    [
        ("%x = bf16[1024,8]{1,0:T(8,128)(2,1)} convert(%p), metadata={x}", WHOLE + HALF),
        ("%x = (f32[1024,8]{1,0}, /*index=1*/bf16[1024,8]{1,0}) op(%p, %q)", 2 * (WHOLE + HALF)),
        (
            "%x = f32[16,8]{1,0:T(8,128)} fusion(%p, %p), kind=kLoop, calls=%fused",
            512 + 512 + WHOLE,
        ),
        ("%x = f32[16,8]{1,0:T(8,128)} slice(%p), slice={[0:16], [0:8]}", 512 + 512),
        ("%x = f32[1024,8]{1,0:T(8,128)S(1)} copy(%p)", WHOLE),  # to VMEM
        ("%x = f32[8192]{0:T(1024)} bitcast(%p)", 0),
        (
            "%x = (f32[1024,8]{1,0:T(8,128)S(1)}, f32[1024,8]{1,0:T(8,128)}, u32[]{:S(2)}) "
            "copy-start(%p)",
            WHOLE,
        ),
        (
            "%x = ((f32[1024,8]{1,0:T(8,128)}), f32[256,8]{1,0:T(8,128)S(1)}, s32[]{:S(2)}) "
            "slice-start(%p), slice={[0:256], [0:8]}",
            WHOLE // 4,
        ),
        ("%x = f32[] conditional(%q, %p, %p), branch_computations={%seldom, %always}", 0),
    ],
)
def test_moved_bytes_of_one_instruction(line, moved):
    assert moved_bytes(PROGRAM.replace("BODY", f"  {line}")) == moved


def test_moved_bytes_of_a_compiled_program_are_its_arguments_and_results():
    a = jnp.ones(1000)
    text = jax.jit(lambda a, b, c: a + b * c).lower(a, a, a).compile().as_text()
    assert moved_bytes(text) == 4 * a.nbytes


def test_moved_bytes_refuses_a_loop():
    a = jnp.ones(1000)
    loop = lambda a: jax.lax.while_loop(lambda a: a[0] < 9, lambda a: a * 2, a)
    with pytest.raises(NotImplementedError, match="loop"):
        moved_bytes(jax.jit(loop).lower(a).compile().as_text())


def test_aot_tables_say_what_was_found(tmp_path):
    file = tmp_path / "results.json"
    on = {"chip": "v5e", "optimizer": "Adam"}
    shape = {**on, "shape": "8 × 8", "dtype": "float32"}
    studies = {
        "streams": [
            {**on, "dtype": "float32", "least": 7, "streams": 7.0, "temporary": 0.0},
            {**on, "dtype": "bfloat16", "least": None, "streams": 7.5, "temporary": 0.0},
            {**on, "chip": "A100", "dtype": "float32", "least": 7, "streams": 9, "temporary": 0.0},
        ],
        "compilation": [{**on, "ratio": 1.0}, {**on, "chip": "A100", "ratio": 1.0}],
        "shapes": [
            {**shape, "refused": ""},
            {**shape, "chip": "v6e", "refused": rows.TOO_LARGE},
            {**shape, "optimizer": "Muon", "refused": ""},
            {**shape, "optimizer": "Muon", "chip": "v6e", "refused": "RESOURCE_EXHAUSTED: vmem"},
        ],
    }
    file.write_text(json.dumps(studies), encoding="utf-8")
    head, body = rows.streams_rows(file, chip="v5e")
    assert head[1:4] == ["float32: least", "float32: moved", "float32: temporary"]
    assert body == [["Adam", "7", "7.00", "0.00", "–", "7.50", "0.00"]]
    assert rows.compilation_rows(file) == (["", "v5e", "A100"], [["Adam", "1.00", "1.00"]])
    assert rows.shapes_rows(file) == (
        ["", "Adam", "Muon"],
        [["8 × 8", "too large for a chip: v6e float32", "refused: v6e float32"]],
    )
