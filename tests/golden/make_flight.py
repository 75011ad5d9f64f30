#!/usr/bin/env python3
"""Writes tests/golden/flight: dumps of PyTorch's flight recorder, for tests/unit/agent/test_trace_torch.c.

    tests/golden/make_flight.py      (torch 2.15; no GPU)

No build runs this script. Each folder has the dumps of 4 ranks, torch-RANK:

    absent      gloo: rank 2 does not come to the second all_reduce of all ranks
    absent-json the same in JSON
    different   gloo: rank 3 calls a broadcast where the others call a barrier
    nccl        rank 2 does not come to an all-gather of a group of a device mesh. These are no real
                dumps, because they need GPUs: the script builds them in the form of
                FlightRecorderDetail.hpp, with a coalesced operation and with stacks

PyTorch's own code writes the dumps of gloo, in a second thread, while the first one waits.
"""
import os
import pickle
import sys
import threading
import time
from datetime import timedelta

RANKS = 4
HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "flight")


def absent(rank, dist, torch):
    pair = dist.new_group([0, 1])
    dist.all_reduce(torch.ones(1000))
    if rank < 2:
        dist.all_reduce(torch.ones(8), group=pair)
    if rank != 2:
        dist.all_reduce(torch.ones(4, 5))


def different(rank, dist, torch):
    dist.all_reduce(torch.ones(16, dtype=torch.float64))
    if rank == 3:
        dist.broadcast(torch.ones(8, dtype=torch.bfloat16), src=0)
    else:
        dist.barrier()


CASES = {"absent": absent, "different": different}


def work(case, rank, dist, torch):
    try:
        CASES[case](rank, dist, torch)
    except RuntimeError:
        pass  # another rank has ended
    time.sleep(60)


def run_rank(case, rank, port):
    os.environ.update(TORCH_FR_BUFFER_SIZE="100", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                      RANK=str(rank), WORLD_SIZE=str(RANKS))
    import torch
    import torch.distributed as dist
    from torch._C._distributed_c10d import _dump_fr_trace, _dump_fr_trace_json
    dist.init_process_group("gloo")
    threading.Thread(target=work, args=(case, rank, dist, torch), daemon=True).start()
    time.sleep(5)  # long enough for all ranks to wait
    with open(f"{HERE}/{case}/torch-{rank}", "wb") as out:
        out.write(_dump_fr_trace(includeStackTraces=False))
    if case == "absent":
        with open(f"{HERE}/absent-json/torch-{rank}.json", "wb") as out:
            out.write(_dump_fr_trace_json())
    time.sleep(3)  # for the other ranks, which must still wait
    os._exit(0)


# --- What NCCL's recorder writes ----------------------------------------------------------------

START = 1_760_000_000_000_000_000  # ns


def entry(number, group, name, seq, sizes, state, p2p=False):
    begun = START + number * 1_000_000
    ended = begun + 500_000 if state == "completed" else None
    return {
        "frames": [{"name": "train_step", "filename": "/opt/train.py", "line": 42}],
        "record_id": number, "pg_id": int(group[0]), "process_group": group,
        "thread_name": "python", "thread_id": "140000000000000",
        "collective_seq_id": 0 if p2p else seq, "p2p_seq_id": seq if p2p else 0, "op_id": number,
        "profiling_name": "nccl:" + name, "time_created_ns": begun,
        "input_sizes": sizes, "input_dtypes": ["BFloat16"] * len(sizes),
        "output_sizes": sizes, "output_dtypes": ["BFloat16"] * len(sizes),
        "state": state, "time_discovered_started_ns": ended and begun,
        "time_discovered_completed_ns": ended, "retired": ended is not None,
        "timeout_ms": 600000, "is_p2p": p2p,
    }


def nccl(rank):
    world, mesh = ("0", "default_pg"), (str(1 + rank // 2), "mesh_tp")
    peer = 1 - rank % 2
    mine = rank % 2
    entries = [
        entry(0, world, "all_reduce", 1, [[1024, 2]], "completed"),
        # The parts of a coalesced operation have no events of their own.
        entry(1, mesh, f"send {mine}->{peer}", 1, [[16]], "scheduled", p2p=True),
        entry(2, mesh, f"recv {mine}<-{peer}", 1, [[16]], "scheduled", p2p=True),
        entry(3, mesh, "coalesced", 1, [[]], "completed", p2p=True),
    ]
    if rank != 2:
        done = "completed" if rank < 2 else "scheduled"
        entries += [entry(4, mesh, "_all_gather_base", 1, [[64]], done),
                    entry(5, world, "all_reduce", 2, [[8]], "scheduled")]
    return {
        "version": "2.10",
        "pg_config": {
            "0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"},
            mesh[0]: {"name": mesh[0], "desc": "mesh_tp",
                      "ranks": "[0, 1]" if rank < 2 else "[2, 3]"},
        },
        "comm_lib_version": "2.27.3",
        "pg_status": {},
        "entries": entries,
    }


def main():
    if len(sys.argv) == 4:
        return run_rank(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    import subprocess
    for name in [*CASES, "absent-json", "nccl"]:
        os.makedirs(f"{HERE}/{name}", exist_ok=True)
    for i, case in enumerate(CASES):
        ranks = [subprocess.Popen([sys.executable, __file__, case, str(r), str(29600 + i)])
                 for r in range(RANKS)]
        for r in ranks:
            r.wait()
    for rank in range(RANKS):
        with open(f"{HERE}/nccl/torch-{rank}", "wb") as out:
            pickle.dump(nccl(rank), out, protocol=2)


if __name__ == "__main__":
    main()
