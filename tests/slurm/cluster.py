"""A real Slurm on this one machine, for tests: munged, slurmctld and slurmd, all state in one folder, nothing outside it touched.

    python tests/slurm/cluster.py FOLDER COMMAND...     run a command beside such a cluster, then stop it

Needs root, the Debian packages slurm-wlm and munge, and nothing else: no systemd, no cgroups, no database, no GPU. The node claims more CPUs
and memory than the machine has, and eight A100s that are copies of /dev/null: Slurm hands them out and sets CUDA_VISIBLE_DEVICES as for real ones.

The cluster's configuration never enters /etc/slurm, so a real cluster's node stays one, and two test runs do not meet. An exported SLURM_CONF
would not do: Snakemake's slurm-jobstep drops it before the srun inside a job. So the client commands are found in a folder of wrappers that set it.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

DAEMONS = ("munged", "slurmctld", "slurmd")
CLIENTS = ("sbatch", "srun", "squeue", "scancel", "scontrol", "sinfo", "sacct", "sacctmgr", "sshare")

_CONFIG = """\
ClusterName=geomix-test
SlurmctldHost={node}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/run/munge.socket
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/slurmd.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd.log
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool

# no cgroups: processes are tracked by their parent, their memory is polled, and what exceeds it is killed
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=1
JobAcctGatherParams=OverMemoryKill

SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
GresTypes=gpu
ReturnToService=2
MpiDefault=none
SwitchType=switch/none
KillWait=300
OverTimeLimit=0
MinJobAge=86400
DefMemPerCPU=1000
CompleteWait=0
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none

SlurmdParameters=config_overrides
NodeName={node} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory={memory_mb} Gres=gpu:a100:{gpus} State=UNKNOWN
PartitionName=cpu Nodes={node} Default=YES MaxTime=1-00:00:00
PartitionName=gpu Nodes={node} MaxTime=1-00:00:00
"""


def missing() -> str | None:
    """Why no cluster can be started here, or None."""
    if os.geteuid() != 0:
        return "a Slurm of one's own needs root"
    absent = [name for name in (*DAEMONS, "srun", "setpriv") if shutil.which(name) is None]
    if absent:
        return f"no {', '.join(absent)} here: apt-get install --no-install-recommends slurm-wlm munge"
    return None


class Cluster:
    """A one-machine cluster under `folder`, running inside a `with` block; its partitions are cpu and gpu.

    Raises RuntimeError, with the ends of the logs, when it does not come up.
    """

    def __init__(self, folder: str | os.PathLike, *, cpus: int = 64, memory_mb: int = 512000, gpus: int = 8):
        self.folder = Path(folder).resolve()
        self.cpus, self.memory_mb, self.gpus = cpus, memory_mb, gpus
        self._daemons: list[subprocess.Popen] = []

    @property
    def environment(self) -> dict[str, str]:
        """The environment in which this cluster's commands are found first."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "SBATCH_"))}
        return {**clean, "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"}

    def run(self, *command: str) -> str:
        """Standard output of a Slurm command; raises CalledProcessError when it fails."""
        return subprocess.run(command, env=self.environment, check=True, capture_output=True, text=True).stdout

    def jobs(self, *runs: str) -> list[dict[str, str]]:
        """Slurm's jobs in the order of submission, ended ones too, as scontrol's fields: JobId, JobState, Comment (rule and wildcards), TresPerJob, ...

        `runs` keeps those of Snakemake's runs of these ids (its "SLURM run ID", the name of all its jobs).
        """
        lines = self.run("scontrol", "--oneliner", "show", "jobs").splitlines()
        jobs = [dict(field.partition("=")[::2] for field in line.split() if "=" in field) for line in lines]
        return sorted(
            (job for job in jobs if not runs or job.get("JobName") in runs), key=lambda job: int(job.get("JobId", 0))
        )

    def __enter__(self) -> Cluster:
        try:
            self._write()
            self._start("munged", "--foreground", "--force", f"--key-file={self.folder}/munge.key",
                        f"--socket={self.folder}/run/munge.socket", f"--pid-file={self.folder}/run/munged.pid",
                        f"--log-file={self.folder}/log/munged.log", f"--seed-file={self.folder}/run/munged.seed")  # fmt: skip
            self._wait("munged", lambda: (self.folder / "run/munge.socket").exists())
            self._start("slurmctld", "-D", "-i")
            self._wait("slurmctld", lambda: "UP" in self.run("scontrol", "ping"))
            self._start("slurmd", "-D")
            self._wait("slurmd", lambda: "idle" in self.run("sinfo", "--noheader", "--format=%t"))
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _write(self) -> None:
        for name in ("bin", "dev", "log", "run", "spool", "state"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        for name in (".", "run"):  # munged refuses a socket in a folder that others may not enter, or may write
            (self.folder / name).chmod(0o755)
        with open(self.folder / "munge.key", "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(os.urandom(128))
        for i in range(self.gpus):
            device = self.folder / "dev" / f"nvidia{i}"
            if not device.exists():
                os.mknod(device, 0o20666, os.makedev(1, 3))
        node = socket.gethostname().partition(".")[0]
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0)), other.bind(("127.0.0.1", 0))
            ports = one.getsockname()[1], other.getsockname()[1]
        config = _CONFIG.format(
            node=node, ports=ports, folder=self.folder, cpus=self.cpus, memory_mb=self.memory_mb, gpus=self.gpus
        )
        (self.folder / "slurm.conf").write_text(config)
        (self.folder / "gres.conf").write_text(
            f"NodeName={node} Name=gpu Type=a100 File={self.folder}/dev/nvidia[0-{self.gpus - 1}]\n"
        )
        # "disabled" came with Slurm 23.02; before it, cgroup/v1 loads without using any cgroup here
        version = subprocess.run(["slurmd", "-V"], check=True, capture_output=True, text=True).stdout.split()[-1]
        (self.folder / "cgroup.conf").write_text(f"CgroupPlugin={'cgroup/v1' if version < '23' else 'disabled'}\n")
        for name in CLIENTS:
            if real := shutil.which(name):
                wrapper = self.folder / "bin" / name
                wrapper.write_text(f'#!/bin/sh\nSLURM_CONF={self.folder}/slurm.conf exec {real} "$@"\n')
                wrapper.chmod(0o755)

    def _start(self, *command: str) -> None:
        """Start a daemon that ends when this process does, however it ends."""
        with open(self.folder / "log" / f"{command[0]}.out", "ab") as out:
            self._daemons.append(
                subprocess.Popen(
                    ["setpriv", "--pdeathsig", "TERM", *command],
                    env={**self.environment, "SLURM_CONF": f"{self.folder}/slurm.conf"},
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    start_new_session=True,  # a Ctrl-C at the terminal is for the tests
                )
            )

    def _wait(self, what: str, ready: Callable[[], bool], seconds: float = 1800) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and self._daemons[-1].poll() is None:
            try:
                if ready():
                    return
            except subprocess.CalledProcessError:
                pass
            time.sleep(0.1)
        logs = sorted(self.folder.glob("log/*"))
        raise RuntimeError(
            f"{what} did not come up\n" + "\n".join(f"{path.name}: {path.read_text()[-1500:]}" for path in logs)
        )

    def _stop(self) -> None:
        """End the jobs, then the daemons, each by its own process id."""
        if len(self._daemons) == len(DAEMONS):
            try:
                self.run("scancel", "--signal=KILL", "--full", "--user=root")
                self.run("scancel", "--user=root")
                end = time.monotonic() + 300
                while self.run("squeue", "--noheader") and time.monotonic() < end:
                    time.sleep(0.2)
            except subprocess.CalledProcessError:
                pass  # slurmctld is gone
        for daemon in reversed(self._daemons):
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(300)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        self._daemons.clear()


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    if reason := missing():
        sys.exit(reason)
    with Cluster(sys.argv[1]) as cluster:
        sys.exit(subprocess.run(sys.argv[2:], env=cluster.environment).returncode)
