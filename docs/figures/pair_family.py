"""Draws docs/figures/pair_family.png and .svg: the sign tables of the pair features inside the table of Cl(4).

Run: python docs/figures/pair_family.py. The tables come from the library, nothing is drawn by hand.
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.patches import Rectangle

from geomix.algebra import Algebra
from geomix.algebra.pair_product import PairProduct

COLOURS = ListedColormap(["#d1495b", "#ffffff", "#2e7ebc"])  # -1, nothing, +1


def signs_and_outputs(table):
    """(sign, output coordinate) of every pair (i, j); -1 where no pair is."""
    sign = np.zeros((table.left, table.right), int)
    output = np.full((table.left, table.right), -1)
    sign[table.i, table.j], output[table.i, table.j] = table.sign, table.k
    return sign, output


def draw(axis, table, names, labels, title, size):
    """One table: colour is the sign, text is the output coordinate."""
    sign, output = signs_and_outputs(table)
    axis.imshow(sign, cmap=COLOURS, vmin=-1, vmax=1)
    for i in range(table.left):
        for j in range(table.right):
            if output[i, j] >= 0:
                axis.text(j, i, labels[output[i, j]], ha="center", va="center", fontsize=size, color="white")
    axis.set_xticks(range(table.right), [f"$b_{{{n}}}$" for n in names], rotation=0, fontsize=size + 1)
    axis.set_yticks(range(table.left), [f"$a_{{{n}}}$" for n in names], fontsize=size + 1)
    axis.tick_params(length=0)
    axis.set_title(title, fontsize=9, linespacing=1.3)
    for spine in axis.spines.values():
        spine.set_visible(False)
    axis.set_xticks(np.arange(-0.5, table.right), minor=True)
    axis.set_yticks(np.arange(-0.5, table.left), minor=True)
    axis.grid(which="minor", color="0.8", lw=0.6)
    axis.tick_params(which="minor", length=0)


def main():
    """Draw and write the figure."""
    r = 4
    algebra = Algebra(r)
    pairs = [f"{i}{j}" for i in range(1, r + 1) for j in range(i + 1, r + 1)]
    kinds = [
        (PairProduct.wedge(r), pairs, "wedge (Plücker)\n$a_i b_j - a_j b_i$"),
        (PairProduct.symmetric(r), pairs, "symmetric control\n$a_i b_j + a_j b_i$"),
        (PairProduct.signed(r, 0), pairs, "random-sign control\n$a_i b_j + s_{ij}\\, a_j b_i$"),
        (PairProduct.geometric(r), ["s", *pairs], "geometric product of vectors\n$ab = a\\cdot b + a\\wedge b$"),
    ]
    figure = plt.figure(figsize=(11, 5.4))
    grid = figure.add_gridspec(2, 4, width_ratios=[1, 1, 0.12, 2.25], wspace=0.28, hspace=0.42)
    for place, (f, labels, title) in zip([(0, 0), (0, 1), (1, 0), (1, 1)], kinds, strict=True):
        draw(figure.add_subplot(grid[place]), f.table, range(1, r + 1), labels, title, 7.5)
    axis = figure.add_subplot(grid[:, 3])
    names = [n.removeprefix("e") if n != "1" else "s" for n in algebra.names]
    draw(
        axis,
        algebra.product(),
        names,
        names,
        "the table they are cut from: geometric product of Cl(4)\n256 signed triplets; framed: both factors are vectors",
        4.8,
    )
    axis.add_patch(Rectangle((0.5, 0.5), r, r, fill=False, lw=2.6, ec="black"))
    handles = [Rectangle((0, 0), 1, 1, fc=COLOURS(c), ec="0.6") for c in (2, 0, 1)]
    figure.legend(
        handles,
        ["+1", "$-1$", "no term"],
        loc="lower center",
        ncol=3,
        frameon=False,
        fontsize=8,
        bbox_to_anchor=(0.25, -0.015),
    )
    folder = Path(__file__).parent
    for suffix in ("png", "svg"):
        figure.savefig(folder / f"pair_family.{suffix}", dpi=130, bbox_inches="tight")


if __name__ == "__main__":
    main()
