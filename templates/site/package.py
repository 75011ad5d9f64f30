# package.py - a recipe for Spack. Put it into the folder packages/muster of a repository of the site (`spack repo create`), and
# name in `git` where the site keeps its clone of muster.
from spack.package import *


class Muster(MakefilePackage):
    """Launcher and trainer for parallel Transformers under Slurm."""

    git = "file:///srv/git/muster.git"
    version("main", branch="main")

    variant("cuda", default=False, description="Build libmuster-cuda.so, which device = cuda needs")

    depends_on("c", type="build")
    depends_on("gmake", type="build")
    depends_on("pkgconfig", type="build")
    # The version of PMIx that Slurm's plugin was built with: muster-agent is its client.
    depends_on("pmix")
    depends_on("hwloc")
    depends_on("libinih")
    depends_on("jansson")
    depends_on("curl")
    depends_on("xxhash")
    depends_on("expat")
    depends_on("libuv")
    depends_on("libsodium")
    depends_on("pcre2")
    depends_on("utf8proc")
    depends_on("zlib-api")
    depends_on("zstd")
    depends_on("libmicrohttpd")
    depends_on("ncurses")
    # muster-agent loads these at run time.
    depends_on("openblas", type="run")
    depends_on("cuda@12:", when="+cuda")
    depends_on("nccl", when="+cuda")

    @property
    def make_words(self):
        home = self.spec["cuda"].prefix if self.spec.satisfies("+cuda") else "/nonexistent"
        return [f"CUDA_HOME={home}", "WARN=-Wall", f"PREFIX={self.prefix}"]

    @property
    def build_targets(self):
        return [*self.make_words, "all", "man"]

    @property
    def install_targets(self):
        return [*self.make_words, "install"]

    def setup_run_environment(self, env):
        loaded = ["openblas"] + (["nccl"] if self.spec.satisfies("+cuda") else [])
        for name in loaded:
            env.prepend_path("LD_LIBRARY_PATH", self.spec[name].prefix.lib)
