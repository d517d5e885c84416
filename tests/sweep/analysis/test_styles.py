"""One colour per label, everywhere, and no two lines of a picture that look alike."""

import itertools
import subprocess
import sys

import numpy as np
import pytest
from mu2_optax.sweep._analysis.styles import (
    COLORS,
    DASHES,
    MARKERS,
    numbered_styles,
    styles,
    styles_of_two_runs,
)
from sweep.conftest import environment

from mu2_optax.sweep._command.optimizers import OPTIMIZERS

GROUNDS = ("#ffffff", "#14161c")  # of the page, light and dark


def rgb(color):
    """Linear intensities of #rrggbb."""
    values = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def oklab(color):
    """Björn Ottosson's OKLab, in which a distance of 0.02 can just be seen."""
    cones = np.array([[0.4122214708, 0.5363325363, 0.0514459929],
                      [0.2119034982, 0.6806995451, 0.1073969566],
                      [0.0883024619, 0.2817188376, 0.6299787005]])  # fmt: skip
    opponents = np.array([[0.2104542553, 0.7936177850, -0.0040720468],
                          [1.9779984951, -2.4285922050, 0.4505937099],
                          [0.0259040371, 0.7827717662, -0.8086757660]])  # fmt: skip
    return opponents @ np.cbrt(cones @ rgb(color))


def contrast(a, b):
    """The ratio of luminances of WCAG."""
    low, high = sorted(rgb(color) @ [0.2126, 0.7152, 0.0722] for color in (a, b))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("dark", [0, 1])
def test_all_colours_are_far_apart_and_off_the_ground(dark):
    colors = [pair[dark] for pair in COLORS]
    nearest = min(
        float(np.linalg.norm(oklab(a) - oklab(b))) for a, b in itertools.combinations(colors, 2)
    )
    assert nearest > 0.13
    assert min(contrast(color, GROUNDS[dark]) for color in colors) > (4.4 if dark else 2.1)


def test_a_label_has_its_colour_whatever_else_there_is():
    labels = [*OPTIMIZERS, *"abcdefghij"]
    for i, label in enumerate(labels):
        alone = styles([label])[label]
        for others in (labels[:i], labels[i + 1 :], labels[::-1]):
            among = styles([*others, label])[label]
            assert (among.color, among.on_dark) == (alone.color, alone.on_dark)


def test_the_commands_optimizers_have_looks_of_their_own():
    looks = styles(OPTIMIZERS)
    assert len({look.color for look in looks.values()}) == len(OPTIMIZERS)
    assert len({(look.dash, look.marker) for look in looks.values()}) == len(OPTIMIZERS)
    assert looks == {name: styles([name])[name] for name in OPTIMIZERS}  # all of it, not the colour
    assert styles(["μ²-SGD"])["μ²-SGD"] == looks["mu2_sgd"]


def test_lines_of_one_colour_differ_by_dashes_and_then_by_markers():
    looks = styles(map(str, range(200)))
    assert len(set(looks.values())) == len(looks)
    few = styles(map(str, range(20)))
    assert len({(look.color, look.dash) for look in few.values()}) == 20
    many = list(styles(map(str, range(1500))).values())
    assert len(set(many)) == len(COLORS) * len(DASHES) * len(MARKERS)  # and then again


def test_two_runs_share_colours_and_markers_and_differ_by_dashes():
    first, second = styles_of_two_runs(["sgd", "adam"])
    for label in first:
        assert first[label].color == second[label].color
        assert first[label].marker == second[label].marker
        assert first[label].dash != second[label].dash
        assert (first[label].hollow, second[label].hollow) == (False, True)
    assert len(set(numbered_styles(40))) == 40


@pytest.mark.slow
def test_a_report_is_written_without_matplotlib(tmp_path):
    script = (
        "import sys, numpy as np\n"
        "from mu2_optax.sweep import SweepResult, write_report\n"
        "r = SweepResult({'loss': np.ones((2, 1))}, {'learning_rate': np.array([1., 2.])},\n"
        "                np.arange(1), np.ones((2, 1), bool))\n"
        "write_report(r, 'loss', 'report.html')\n"
        "assert 'matplotlib' not in sys.modules\n"
    )
    subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment(), check=True, timeout=120
    )
