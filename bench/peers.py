"""Make the interpreters of the peers: ``python bench/peers.py lightning liblinear vowpal-wabbit``.

lightning has no wheel for Python 3.11 and is built from source against the NumPy and Cython of its time.
Run it with Python 3.11.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PEERS = {
    "lightning": (
        ["numpy==1.26.4", "scipy==1.11.4", "scikit-learn==1.3.2", "Cython==0.29.37", "setuptools==59.8.0",
         "wheel"],
        ["--no-build-isolation", "sklearn-contrib-lightning==0.6.2.post0"],
    ),
    # Its solvers for classifiers need no torch, which the package asks for.
    "mrcpy": (
        ["numpy", "scipy", "scikit-learn==1.5.2", "cvxpy", "gurobipy", "pandas", "tqdm"],
        ["--no-deps", "MRCpy==3.0.0"],
    ),
    "liblinear": (["numpy>=2,<2.3", "scipy"], ["liblinear-official==2.50.0"]),
    "vowpal-wabbit": (["numpy>=2,<2.3", "scipy"], ["vowpalwabbit==9.11.9"]),
}  # fmt: skip


def interpreter(name: str, folder: Path) -> Path:
    """Return the path of a peer's interpreter, which need not be there."""
    return folder / "peers" / name / "bin" / "python"


def make(name: str, folder: Path) -> Path:
    """Make the interpreter unless it is there."""
    python = interpreter(name, folder)
    home = python.parents[1]
    if not home.exists():
        partial = home.with_suffix(".partial")
        subprocess.run([sys.executable, "-m", "venv", "--clear", partial], check=True)
        for packages in PEERS[name]:
            subprocess.run(
                [partial / "bin" / "python", "-m", "pip", "install", "--quiet", *packages],
                check=True,
                env={**os.environ, "SETUPTOOLS_USE_DISTUTILS": "stdlib"},
            )
        partial.rename(home)  # an interpreter finds its packages wherever it lies
    return python


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("peers", nargs="+", choices=PEERS)
    parser.add_argument("--folder", type=Path, default=HERE / "data")
    arguments = parser.parse_args()
    for name in arguments.peers:
        print(make(name, arguments.folder))


if __name__ == "__main__":
    main()
