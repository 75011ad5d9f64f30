"""A program for tests: counts steps, saves every 10 of them, and ends after --steps. Rank 0 has the checkpoint."""
import os
import sys
import time

import muster_client

steps, folder = int(sys.argv[1]), sys.argv[2]
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
file = os.path.join(folder, "checkpoint")
os.makedirs(folder, exist_ok=True)


def load():
    try:
        with open(file) as f:
            return int(f.read())
    except FileNotFoundError:
        return 0


def save(step):
    with open(file + ".new", "w") as f:
        f.write(str(step))
    os.replace(file + ".new", file)
    muster_client.checkpoint_saved(file, step)


step = load()
print(f"rank {rank} of {world} continues from step {step}, start {os.environ['TORCHELASTIC_RESTART_COUNT']}", flush=True)
while step < steps:
    time.sleep(0.02)
    step += 1
    muster_client.step(step, loss=1 / step)
    stop = muster_client.should_stop()
    if rank == 0 and (step % 10 == 0 or stop or step == steps):
        save(step)
    if stop:
        break
print(f"rank {rank} of {world} ends after step {step}", flush=True)
