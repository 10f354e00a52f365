#!/usr/bin/python3
"""libmoe over an MPI: bits, errors, ranks that vanish.

    tests/dist/mpi_test.py SUITE --mpi openmpi|mpich --ranks mpi_ranks --cluster cluster [--rounds N] [--seed N]

bits      the example `cluster` on checkpoints of three formats: the SHA-256 of a single process from 1, 2, 3, 4, 7 and 8 ranks,
          evenly cut and with fewer tokens than ranks; with combine compact those of a second run
calls     mpi_ranks: good calls; mode tp, twice with the same bits; bad ids, another step, another config on one rank
hostile   mpi_ranks: what one rank sends changes on its way, is short or lost; the first of 32 or --rounds * 4 seeds is printed
faults    a rank that is killed, stops, sleeps: the others get an error within the deadline, and go on by themselves
hosts     two hosts with a network between them, as two network namespaces (root): the SHA-256 of one process; the link is cut in a
          call: an error within the deadline
large     mpi_large (beside mpi_ranks), 2.18 GB in one exchange: the bits of one process; 77 where 9 GB are not free
installed a build's files (--own) in another place: the example cluster by pkg-config, mpi_ranks by a CMake project
library   what libmoe_mpi (--own) exports and needs; libmoe itself has nothing of an MPI
python    mpi_python.py with mpi4py (Debian's, or one in PYTHONPATH), on the MPI that it was built for; skipped (77) with the other one
foreign   a program of one MPI with the libmoe_mpi of the other (--other): MOE_ERR_VERSION, no crash
random    --rounds times a rank that is killed at a random time; the seed is printed
"""
import argparse
import contextlib
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
FLAGS = {  # of mpirun: more ranks than cores, and as root in a container
    "openmpi": ["--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"],
    "mpich": ["-bind-to", "none"],
}
RECOVERY = {"openmpi": ["--mca", "orte_enable_recovery", "1"], "mpich": []}
ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "PRTE_ALLOW_RUN_AS_ROOT": "1"}
NUMBERS = (1, 2, 3, 4, 7, 8)
FORMATS = (("tiny", "pack"), ("tiny_gptoss", "mxfp4"), ("tiny_deepseek", "fp8-block"))


class Job:
    """mpirun with its ranks in a session of their own, of which nothing is left."""

    def __init__(self, args, ranks, command, more=()):
        self.mpi = args.mpi
        line = [f"mpirun.{args.mpi}", *FLAGS[args.mpi], *more, "-n", str(ranks), *map(str, command)]
        self.said = tempfile.TemporaryFile()  # not a pipe, which a lost process would hold open
        self.process = subprocess.Popen(line, stdout=self.said, stderr=subprocess.STDOUT, start_new_session=True,
                                        env={**os.environ, **ENVIRONMENT})
        self.name = pathlib.Path(command[0]).name
        self.begin = time.monotonic()

    def age(self):
        return time.monotonic() - self.begin

    def output(self):
        """So far. The file is opened anew: the job writes where this descriptor of it stands."""
        return pathlib.Path(f"/proc/self/fd/{self.said.fileno()}").read_bytes().decode(errors="replace")

    def wait(self, seconds):
        """Output; a job that does not end is killed, and None."""
        try:
            self.process.wait(seconds)
            return self.output()
        except subprocess.TimeoutExpired:
            self.sweep()
            return None

    def left(self):
        """Ranks that are still there."""
        found = subprocess.run(["pgrep", "-x", self.name[:15]], capture_output=True, text=True, check=False).stdout.split()
        return [int(pid) for pid in found]

    def sweep_ranks(self):
        for pid in self.left():
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(pid, signal.SIGKILL)

    def sweep(self):
        self.sweep_ranks()
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


def check(condition, what, output=""):
    if not condition:
        sys.exit(f"FAILED: {what}\n{output or ''}")


def expect_all(args, ranks, scenario, seed=7, told=None, seconds=60, more=()):
    """`told` ranks say that they saw what they should; of those that are named, each does."""
    job = Job(args, ranks, [args.ranks, scenario, seed], more)
    output = job.wait(seconds)
    job.sweep()
    check(output is not None, f"{scenario}, {ranks} ranks: no end within {seconds} s")
    said = {int(rank) for rank in re.findall(r"^.*rank (\d+): as expected", output, re.M)}
    good, wanted = len(said), ranks if told is None else told
    check(said >= wanted if isinstance(wanted, set) else good == wanted,
          f"{scenario}, {ranks} ranks, seed {seed}: ranks {said} of {wanted} as expected", output)
    print(f"{scenario}, {ranks} ranks, seed {seed}: {good} ranks as expected", flush=True)
    return output


def make_checkpoint(model, shape, form):
    subprocess.run([ROOT / "bindings_examples/make_checkpoint", model, "--shape", shape, "--format", form], check=True,
                   stdout=subprocess.DEVNULL)


HASH = r"SHA-256 of the outputs: ([0-9a-f]{64})"


def cluster(args, ranks, model, tokens, more=(), combine="exact"):
    return Job(args, ranks, [args.cluster, model, "--tokens", tokens, "--calls", 2, "--threads", 1, "--combine", combine], more)


def hash_of(args, ranks, model, *more):
    output = cluster(args, ranks, model, *more).wait(120)
    found = re.search(HASH, output or "")
    check(found, f"{model.name}, {ranks} ranks: no hash", output)
    return found[1]


def bits(args, folder):
    for shape, form in FORMATS:
        model = folder / f"{shape}-{form}"
        make_checkpoint(model, shape, form)
        for tokens in (23, 3):
            hashes = {ranks: hash_of(args, ranks, model, tokens) for ranks in NUMBERS}
            check(len(set(hashes.values())) == 1, f"{shape} {form}, {tokens} tokens: {hashes}")
            print(f"{shape} {form}, {tokens} tokens: {hashes[1][:16]} from {', '.join(map(str, NUMBERS))} ranks", flush=True)
        for ranks in (2, 3, 8):
            again = {hash_of(args, ranks, model, 23, (), "compact") for _ in range(2)}
            check(len(again) == 1, f"{shape} {form}, compact, {ranks} ranks: two runs differ")
        print(f"{shape} {form}, compact: the same bits again with 2, 3 and 8 ranks", flush=True)


def calls(args, _):
    for ranks in NUMBERS:
        expect_all(args, ranks, "well")
    for ranks in (1, 2, 4, 8):
        again = {tuple(sorted(re.findall(r"rank \d+: as expected, bits \w+", expect_all(args, ranks, "tp")))) for _ in range(2)}
        check(len(again) == 1, f"tp, {ranks} ranks: two runs differ", str(again))
    for scenario in ("bad-ids", "other-step", "other-config"):
        for ranks in (2, 4):
            expect_all(args, ranks, scenario)


def ends_with_its_rank(args, scenario, seed=7):
    """MPICH ends a job whose rank was killed: within five seconds, and all of it."""
    job = Job(args, 3, [args.ranks, scenario, seed])
    begin = time.monotonic()
    output = job.wait(30)
    check(output is not None, f"{scenario}: the job did not end")
    time.sleep(0.5)
    left = job.left()
    job.sweep()
    check(not left, f"{scenario}: processes {left} are left", output)
    check(job.process.returncode != 0, f"{scenario}: the job ended well", output)
    print(f"{scenario}, seed {seed}: the job ended {time.monotonic() - begin - 0.5:.1f} s after its start, nothing is left", flush=True)
    return time.monotonic() - begin


def faults(args, _):
    for ranks in (2, 3, 4):
        expect_all(args, ranks, "late", told=ranks - 1, more=RECOVERY[args.mpi])
    if args.mpi == "mpich":
        # Its launcher waits for a stopped rank as for one that works; the others' ends are seen in what they say.
        check(ends_with_its_rank(args, "killed") < 5 + 2, "killed: later than 5 s")
        return
    for ranks in (2, 3, 4):
        expect_all(args, ranks, "killed", told=ranks - 1, more=RECOVERY[args.mpi])
    stopped(args)


def hostile(args, _):
    """Of the last rank nothing is expected: where MPI refuses what it is given, the process may end."""
    seed = args.seed or random.SystemRandom().randrange(1 << 31)
    print(f"seed {seed}", flush=True)
    spoiled = 0
    for one in range(seed, seed + max(32, 4 * args.rounds)):  # all ways in turn
        ranks = 2 + one // 4 % 2
        output = expect_all(args, ranks, "hostile", one, told=set(range(ranks - 1)), more=RECOVERY[args.mpi])
        spoiled += sum(map(int, re.findall(r"as expected.*, spoiled (\d+)", output)))
    check(spoiled >= args.rounds, f"hostile: {spoiled} messages changed")
    print(f"{spoiled} messages changed")


def stopped(args):
    """The job itself ends when the stopped rank is killed at last."""
    job = Job(args, 3, [args.ranks, "stopped"], RECOVERY[args.mpi])
    time.sleep(12)
    job.sweep_ranks()
    job.wait(20)
    job.sweep()
    good = len(re.findall(r"^.*rank \d+: as expected", job.output(), re.M))
    check(good == 2, f"stopped: {good} of 2 ranks as expected", job.output())
    print("stopped, 3 ranks: 2 ranks as expected", flush=True)


def randomly(args, _):
    seed = args.seed or random.SystemRandom().randrange(1 << 31)
    print(f"seed {seed}", flush=True)
    numbers = random.Random(seed)
    for _ in range(args.rounds):
        ranks, one = numbers.choice((2, 3, 4)), numbers.randrange(1 << 31)
        if args.mpi == "mpich":
            ends_with_its_rank(args, "random", one)
        else:
            expect_all(args, ranks, "random", one, ranks - 1, more=RECOVERY[args.mpi])


# A command on a "host": a network namespace with a host name and shared memory of its own, so that Open MPI takes it for one.
NETWORK = "10.88.77"
REMOTE = f"""#!/bin/sh
while case $1 in -*) ;; *) false ;; esac; do shift; done
host=$1; shift
line=$(echo "$*" | sed 's/--control-port [^:]*:/--control-port {NETWORK}.254:/') # of MPICH: where the launcher listens
exec ip netns exec "$host" unshare --uts --ipc --mount sh -c 'hostname "$0"; mount -t tmpfs tmpfs /dev/shm; eval "$1"' "$host" "$line"
"""
SPREAD = {
    "openmpi": ["--mca", "plm", "rsh", "--mca", "plm_rsh_agent", "SHELL", "--host", "mh1:2,mh2:2", "--mca", "pml", "ob1", "--mca", "btl",
                "tcp,self,vader", "--mca", "btl_vader_single_copy_mechanism", "none", "--mca", "btl_tcp_if_include", f"{NETWORK}.0/24",
                "--mca", "oob_tcp_if_include", f"{NETWORK}.0/24"],
    "mpich": ["-launcher", "ssh", "-launcher-exec", "SHELL", "-hosts", "mh1:2,mh2:2", "-iface", "eth0", "-genv", "UCX_TLS", "tcp,self"],
}


class Hosts:
    """mh1 and mh2, and a bridge between them."""

    def __enter__(self):
        self.__exit__()  # what a killed run left
        self.run("ip link add mhbr type bridge", f"ip addr add {NETWORK}.254/24 dev mhbr", "ip link set mhbr up")
        for i in (1, 2):
            self.run(f"ip netns add mh{i}", f"ip link add mhv{i} type veth peer name eth0 netns mh{i}", f"ip link set mhv{i} master mhbr up",
                     f"ip netns exec mh{i} ip addr add {NETWORK}.{i}/24 dev eth0", f"ip netns exec mh{i} ip link set eth0 up",
                     f"ip netns exec mh{i} ip link set lo up")
        return self

    def run(self, *lines):
        for line in lines:
            subprocess.run(line.split(), check=True)

    def cut(self):
        self.run("ip netns exec mh2 ip link set eth0 down")

    def __exit__(self, *_):
        for line in ("ip link del mhv1", "ip link del mhv2", "ip netns del mh1", "ip netns del mh2", "ip link del mhbr"):
            subprocess.run(line.split(), check=False, capture_output=True)


def hosts(args, folder):
    """Skipped (77) where no namespace can be made."""
    if os.geteuid() != 0 or subprocess.run(["ip", "netns", "add", "mhtry"], capture_output=True, check=False).returncode != 0:
        print("hosts: no network namespace can be made here")
        sys.exit(77)
    subprocess.run(["ip", "netns", "del", "mhtry"], check=True)
    shell, model = folder / "remote", folder / "model"
    shell.write_text(REMOTE, encoding="utf-8")
    shell.chmod(0o755)
    make_checkpoint(model, "tiny", "pack")
    spread = [str(shell) if word == "SHELL" else word for word in SPREAD[args.mpi]]
    with Hosts() as network:
        want = hash_of(args, 1, model, 23)
        job = cluster(args, 4, model, 23, spread)
        if args.mpi == "mpich":  # MPICH 4.0 over UCX does not come back from MPI_Finalize here: what it has said counts
            while job.process.poll() is None and not re.search(HASH, job.output()) and job.age() < 60:
                time.sleep(0.1)
        else:
            check(job.wait(60) is not None and job.process.returncode == 0, "two hosts: no good end", job.output())
        time.sleep(0.5)
        job.sweep()
        got = re.search(HASH, job.output())
        check(got and got[1] == want, f"two hosts, one process: {want}", job.output())
        print(f"4 ranks on 2 hosts: {want[:16]} as from one process", flush=True)
        job = Job(args, 4, [args.ranks, "endless"], [*spread, *RECOVERY[args.mpi]])
        time.sleep(4)
        network.cut()
        time.sleep(6)
        job.sweep()
        output = job.output()
        good = len(re.findall(r"^.*rank \d+: as expected", output, re.M))
        check(good >= 2, f"link cut: {good} ranks as expected", output)  # what the other host says is lost with the link
        print(f"link cut: {good} ranks as expected", flush=True)


def foreign(args, _):
    """The loader takes MPI's functions from the MPI of the program."""
    line = [f"mpirun.{args.mpi}", *FLAGS[args.mpi], "-n", "1", "env", f"LD_PRELOAD={args.other}", str(args.ranks), "well"]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=60, env={**os.environ, **ENVIRONMENT})
    said = done.stdout + done.stderr
    check("MOE_ERR_VERSION" in said and "was built for" in said, "another MPI is not refused", said)
    print(re.search(r"MPI: this library.*", said)[0])
    launcher = "mpich" if args.mpi == "openmpi" else "openmpi"
    line = [f"mpirun.{launcher}", *FLAGS[launcher], "-n", "2", str(args.cluster), "/nowhere"]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=60, env={**os.environ, **ENVIRONMENT})
    said = done.stdout + done.stderr
    check(done.returncode != 0 and said.count("not the one whose mpirun started it") == 2, "another launcher is not refused", said)


PYTHON = pathlib.Path("/usr/bin/python3")  # the one that sees Debian's mpi4py
ITS_MPI = """
import mpi4py
mpi4py.rc.initialize = mpi4py.rc.finalize = False
from mpi4py import MPI
print(MPI.Get_library_version())
"""
NAMES = {"openmpi": "Open MPI", "mpich": "MPICH"}


def core_of(args):
    """The libmoe that libmoe_mpi was built with."""
    core = next((folder / "libmoe.so.0" for folder in args.own.parents if (folder / "libmoe.so.0").exists()), None)
    check(core, "no libmoe.so.0 above it")
    return core


def python(args, folder):
    asked = subprocess.run([PYTHON, "-c", ITS_MPI], capture_output=True, text=True, check=False)
    check(asked.returncode == 0, f"{PYTHON} has no mpi4py: tests/install_deps dist", asked.stderr)
    said = asked.stdout.strip("\0 \n").splitlines()[0]
    if not said.startswith(NAMES[args.mpi]):
        print(f"python: mpi4py here was built for {said}; {NAMES[args.mpi]} cannot be tried with it")
        sys.exit(77)
    package = ROOT / "bindings_examples/bindings/python"
    path = os.pathsep.join([str(package), *filter(None, [os.environ.get("PYTHONPATH")])])
    os.environ.update(LIBMOE_PATH=str(core_of(args)), PYTHONPATH=path, PYTHONDONTWRITEBYTECODE="1")
    interpreter = folder / "mpi_python"  # a name of its own, by which Job finds its ranks
    interpreter.symlink_to(PYTHON)
    for ranks in NUMBERS:
        job = Job(args, ranks, [interpreter, ROOT / "tests/dist/mpi_python.py"])
        output = job.wait(60)
        job.sweep()
        check(output is not None, f"{ranks} ranks: no end within 60 s")
        good = job.process.returncode == 0 and re.search(rf"^{ranks} ranks, .*: the bytes of one process$", output, re.M)
        check(good, f"{ranks} ranks", output)
        print(output.strip(), flush=True)


EXPORTS = {"moe_mpi_built_for", "moe_mpi_comm_create_f"}  # the baseline: it grows only
NEEDS = {"openmpi": "libmpi.so.", "mpich": "libmpich.so."}


def library(args, _):
    def lines(*command):
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()

    def needed(path):
        return [re.search(r"\[(.*)\]", line)[1] for line in lines("readelf", "-d", path) if "(NEEDED)" in line]

    exported = {line.split()[-1].split("@")[0] for line in lines("nm", "-D", "--defined-only", args.own)} - {"MOE_MPI_0"}
    check(exported == EXPORTS, f"it exports {sorted(exported)}")
    soname = next(line for line in lines("readelf", "-d", args.own) if "SONAME" in line)
    check("[libmoe_mpi.so.0]" in soname, soname)
    mine = needed(args.own)
    check("libmoe.so.0" in mine and any(name.startswith(NEEDS[args.mpi]) for name in mine), f"it needs {mine}")
    core = core_of(args)
    check(not any("mpi" in name for name in needed(core)), f"libmoe needs {needed(core)}")
    undefined = [line for line in lines("nm", "-D", "--undefined-only", core) if re.search(r" (MPI|ompi|MPIR)_", line)]
    check(not undefined, f"libmoe uses {undefined}")
    print(f"exports {', '.join(sorted(exported))}; needs {', '.join(mine)}; libmoe needs {', '.join(needed(core))}")


def large(args, _):
    free = int(re.search(r"MemAvailable: *(\d+) kB", pathlib.Path("/proc/meminfo").read_text())[1])
    if free < 9 << 20:
        print(f"large: {free >> 20} GB are free, 9 are needed")
        sys.exit(77)
    job = Job(args, 2, [args.ranks.parent / "mpi_large"])
    output = job.wait(600)
    job.sweep()
    check(output and job.process.returncode == 0 and "the bits of one process" in output, "2 ranks", output)
    print(output.strip())


PROJECT = """cmake_minimum_required(VERSION 3.20)
project(consumer C)
find_package(moe 0.1 REQUIRED COMPONENTS shared mpi_{mpi})
find_package(PkgConfig REQUIRED)
pkg_check_modules(OF_MPI REQUIRED IMPORTED_TARGET {module})
add_executable(mpi_ranks {source})
target_compile_definitions(mpi_ranks PRIVATE _GNU_SOURCE)
target_link_libraries(mpi_ranks PRIVATE moe::mpi_{mpi} PkgConfig::OF_MPI m)
"""
MODULES = {"openmpi": "ompi-c", "mpich": "mpich"}


def installed(args, folder):
    quiet = {"check": True, "stdout": subprocess.DEVNULL}
    build, tree = core_of(args).parent, folder / "prefix"
    subprocess.run(["cmake", "--install", build, "--prefix", tree], **quiet)
    description = next(tree.rglob(f"libmoe-mpi-{args.mpi}.pc"))
    os.environ["PKG_CONFIG_PATH"] = str(description.parent)
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", f"libmoe-mpi-{args.mpi}", MODULES[args.mpi]], check=True,
                           capture_output=True, text=True).stdout.split()
    model, cluster = folder / "model", folder / "cluster"
    make_checkpoint(model, *FORMATS[0])
    want = hash_of(args, 1, model, 23)
    subprocess.run(["cc", "-std=c11", "-D_GNU_SOURCE", ROOT / "bindings_examples/examples/cluster/cluster.c", "-o", cluster, *flags,
                    f"-Wl,-rpath,{description.parent.parent}"], check=True)
    args.cluster = cluster
    check(hash_of(args, 3, model, 23) == want, "other bits")
    project = folder / "project"
    project.mkdir()
    (project / "CMakeLists.txt").write_text(
        PROJECT.format(mpi=args.mpi, module=MODULES[args.mpi], source=ROOT / "tests/dist/mpi_ranks.c"))
    subprocess.run(["cmake", "-S", project, "-B", project / "build", f"-DCMAKE_PREFIX_PATH={tree}"], **quiet)
    subprocess.run(["cmake", "--build", project / "build"], **quiet)
    args.ranks = project / "build/mpi_ranks"
    expect_all(args, 3, "well")
    print(f"installed: cluster by {description.name}, mpi_ranks by moe::mpi_{args.mpi}")


SUITES = {"bits": bits, "library": library, "hosts": hosts, "foreign": foreign, "python": python, "calls": calls, "faults": faults,
          "random": randomly, "hostile": hostile, "large": large, "installed": installed}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("--mpi", choices=FLAGS, required=True)
    parser.add_argument("--ranks", type=lambda p: pathlib.Path(p).resolve(), required=True)
    parser.add_argument("--cluster", type=lambda p: pathlib.Path(p).resolve(), required=True)
    parser.add_argument("--own", type=lambda p: pathlib.Path(p).resolve(), help="libmoe_mpi of this MPI")
    parser.add_argument("--other", type=lambda p: pathlib.Path(p).resolve(), help="libmoe_mpi of the other MPI")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if not shutil.which(f"mpirun.{args.mpi}"):
        sys.exit(f"no mpirun.{args.mpi}: tests/install_deps dist")
    with tempfile.TemporaryDirectory(prefix="libmoe_mpi.") as folder:
        SUITES[args.suite](args, pathlib.Path(folder))
    print("1 passed, 0 failed")


if __name__ == "__main__":
    main()
