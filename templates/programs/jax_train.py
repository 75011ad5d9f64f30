"""Trains a small model on synthetic data with JAX, data-parallel over all processes, and continues from its own checkpoint.

It uses the GPUs, or without GPUs the CPU with collectives over Gloo. --folder is on a file system that all processes share.
"""
import argparse, os, signal
import jax, numpy
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec
try:
    import muster_client  # reports progress to muster; without it the program runs under any other launcher
except ImportError:
    muster_client = None

options = argparse.ArgumentParser()
options.add_argument("--steps", type=int, default=200)
options.add_argument("--every", type=int, default=20, help="steps between checkpoints")
options.add_argument("--folder", default="jax-checkpoint")
args = options.parse_args()
signals = []
signal.signal(signal.SIGTERM, lambda number, _: signals.append(number))

rank, world = int(os.environ["JAX_PROCESS_ID"]), int(os.environ["JAX_NUM_PROCESSES"])
gpus = [x for x in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if x]
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(os.environ["JAX_COORDINATOR_ADDRESS"], world, rank,
                           local_device_ids=0 if len(gpus) == 1 else int(os.environ["LOCAL_RANK"]))
mesh = jax.make_mesh((jax.device_count(),), ("data",))
split, whole = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())
numbers = numpy.random.default_rng(1)
state = [numbers.normal(0, 0.1, shape).astype("float32") for shape in ((64, 256), (256,), (256, 64), (64,))]
file, step, stop = os.path.join(args.folder, "checkpoint.npz"), 0, False
os.makedirs(args.folder, exist_ok=True)
if os.path.exists(file):
    with numpy.load(file) as saved:
        step, state = int(saved["step"]), [saved[f"weight-{i}"] for i in range(4)]
state = jax.device_put(state, whole)
@jax.jit
def train(state, x, stop):
    def loss(w):
        return jnp.mean((jax.nn.gelu(x @ w[0] + w[1]) @ w[2] + w[3] - jnp.cumsum(jnp.sin(x), 1)) ** 2)
    value, gradients = jax.value_and_grad(loss)(state)
    return [w - 0.05 * g for w, g in zip(state, gradients)], value, jnp.max(stop)
while step < args.steps and not stop:
    step += 1
    # The data is a function of the step and the process, so a run that restarts repeats it.
    local = numpy.random.default_rng([step, rank]).normal(size=(32, 64)).astype("float32")
    asked = bool(signals) or bool(muster_client and muster_client.should_stop())
    x, flags = (jax.make_array_from_process_local_data(split, a) for a in (local, numpy.full(jax.local_device_count(), asked)))
    state, loss, stop = train(state, x, flags)
    if muster_client:
        muster_client.step(step, loss=float(loss), tokens=x.size)
    if rank == 0:
        print(f"step {step} loss {float(loss):.9g}", flush=True)
        if step % args.every == 0 or step == args.steps or stop:
            with open(file + ".new", "wb") as f:
                numpy.savez(f, step=step, **{f"weight-{i}": w for i, w in enumerate(state)})
            os.replace(file + ".new", file)  # the old checkpoint or the new one, whenever the program is killed
            if muster_client:
                muster_client.checkpoint_saved(file, step)
