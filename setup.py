"""Build the Cython kernels; everything else is declared in pyproject.toml.

Three environment variables change the build:

SIMLEARN_DEBUG=1
    Index checks in every kernel.
SIMLEARN_OPENMP=0
    No OpenMP, even where the compiler has it: kernels then run on one thread.
SIMLEARN_SANITIZE=1
    Kernels under gcc's address and undefined-behaviour sanitizers, which stop at the
    first fault, and without OpenMP. `.ci/run` shows how to run such a build.
"""

import os
import tempfile
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, LinkError

DEBUG = os.environ.get("SIMLEARN_DEBUG", "0") != "0"
SANITIZE = os.environ.get("SIMLEARN_SANITIZE", "0") != "0"
WANT_OPENMP = os.environ.get("SIMLEARN_OPENMP", "1") != "0" and not SANITIZE

SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]

DIRECTIVES = {
    "language_level": 3,
    "boundscheck": DEBUG,
    "wraparound": False,
    "initializedcheck": DEBUG,
    "cdivision": True,
    "freethreading_compatible": True,
}


class BuildKernels(build_ext):
    """Compile for speed, with OpenMP if a test program compiles and links."""

    def finalize_options(self):
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    def build_extensions(self):
        if self.compiler.compiler_type == "msvc":
            optimise, openmp = ["/O2"], ["/openmp"]
        else:
            # Kernels do not use errno or floating-point traps; without these, loops can
            # be vectorised. The order of sums is kept, and products are not fused with
            # sums, so that results do not depend on the instruction set.
            # Debugging symbols, which Python's flags request, would be five sixths of
            # the size of a kernel.
            optimise = ["-O3", "-fno-math-errno", "-fno-trapping-math"]
            optimise += ["-ffp-contract=off", "-g0"]
            openmp = ["-fopenmp"]
        use_openmp = WANT_OPENMP and self.compiles_and_links(openmp)
        for extension in self.extensions:
            extension.extra_compile_args += optimise + (openmp if use_openmp else [])
            if use_openmp and self.compiler.compiler_type != "msvc":
                extension.extra_link_args += openmp
            if SANITIZE:  # the last of several options counts
                # -Og -g1 compiles three times as fast as -O1 -g, and keeps the lines.
                # It does not unroll loops; -w hides a warning about each of them.
                extension.extra_compile_args += [*SANITIZERS, "-Og", "-g1", "-w"]
                extension.extra_link_args += SANITIZERS
        super().build_extensions()

    def compiles_and_links(self, flags):
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "trial.c"
            source.write_text(
                "#include <omp.h>\nint main(void) { return omp_get_max_threads() < 1; }"
            )
            try:
                objects = self.compiler.compile(
                    [str(source)], output_dir=folder, extra_postargs=flags
                )
                link_flags = [] if self.compiler.compiler_type == "msvc" else flags
                self.compiler.link_executable(
                    objects, str(Path(folder) / "trial"), extra_postargs=link_flags
                )
            except (CompileError, LinkError):
                return False
        return True


# One kernel is one extension, in the folder of the module that uses it.
kernels = sorted(Path("sklearn_simlearn").rglob("_*_fast.pyx"))
# The code for memoryviews, which Cython would otherwise copy into every kernel.
SHARED = "sklearn_simlearn._core._memoryviews"
extensions = [Extension(SHARED, [SHARED.replace(".", "/") + ".c"])] + [
    Extension(
        ".".join(pyx.with_suffix("").parts),
        [pyx.as_posix()],
        depends=["sklearn_simlearn/_core/simd.h", *map(str, pyx.parent.glob("*.h"))],
        include_dirs=["sklearn_simlearn/_core", pyx.parent.as_posix()],
    )
    for pyx in kernels
]

setup(
    ext_modules=cythonize(
        extensions,
        compiler_directives=DIRECTIVES,
        build_dir="build/cython",
        shared_utility_qualified_name=SHARED,
    ),
    cmdclass={"build_ext": BuildKernels},
)
