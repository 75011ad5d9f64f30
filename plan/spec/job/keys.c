#include "plan/spec/job/keys.h"
#include "plan/spec/job/notify.h"

#include <string.h>

#define FIELD(s, k) \
	.section = #s, .name = #k, .offset = offsetof(struct job, s.k), \
	.size = sizeof(((struct job *)0)->s.k)
#define INT(s, k, d, l, h, text) \
	{ \
		FIELD(s, k), .type = JOB_INT, .def = d, .lo = l, .hi = h, .doc = text \
	}
#define RANGE(s, k, d, l, h, text) \
	{ \
		FIELD(s, k), .type = JOB_RANGE, .def = d, .lo = l, .hi = h, .doc = text \
	}
#define REAL(s, k, d, l, h, text) \
	{ \
		FIELD(s, k), .type = JOB_REAL, .def = d, .lo = l, .hi = h, .doc = text \
	}
#define ABOVE(s, k, d, l, h, text) \
	{ \
		FIELD(s, k), .type = JOB_REAL, .def = d, .lo = l, .hi = h, .above = true, \
			     .doc = text \
	}
#define SHARE(s, k, d, text) \
	{ \
		FIELD(s, k), .type = JOB_REAL, .def = d, .lo = 0, .hi = 1, .below = true, \
			     .doc = text \
	}
#define ENUM(s, k, d, list, text) \
	{ \
		FIELD(s, k), .type = JOB_ENUM, .def = d, .words = list, .doc = text \
	}
#define WORD(s, k, d, list, text) \
	{ \
		FIELD(s, k), .type = JOB_WORD, .def = d, .words = list, .doc = text \
	}
#define BOOL(s, k, d, text) \
	{ \
		FIELD(s, k), .type = JOB_BOOL, .def = d, .words = bools, .doc = text \
	}
#define TEXT(s, k, t, d, text) \
	{ \
		FIELD(s, k), .type = t, .def = d, .doc = text \
	}

/* In the order of the enums of job.h. */
#define FAMILY_WORD(id, word, ...)       word,
#define FAMILY_HELP(id, word, help, ...) " " word ": " help "."
static const char *const families[] = { SHAPE_FAMILIES(FAMILY_WORD) NULL };
static const char *const ties[] = { "auto", "yes", "no", NULL };
static const char *const rope_scalings[] = { "none", "linear", "llama3", NULL };
static const char *const routers[] = { "after", "before", NULL };
static const char *const zero_shards[] = { "all", "node", NULL };
static const char *const syncs[] = { "all-reduce", "server", NULL };
static const char *const recomputes[] = { "none", "selective", "full", NULL };
static const char *const dtypes[] = { "fp32", "bf16", "fp16", NULL };
static const char *const fp8s[] = { "off", "e4m3", "hybrid", NULL };
static const char *const fp8_scalings[] = { "current", "delayed", NULL };
static const char *const lr_schedules[] = { "cosine",       "linear", "constant",
					    "inverse-sqrt", "wsd",    NULL };
static const char *const documents[] = { "mix", "mask", NULL };
static const char *const launchers[] = { "auto", "local", "slurm", NULL };
static const char *const pmixes[] = { "auto", "slurm", "muster", NULL };
static const char *const binds[] = { "auto", "none", "core", NULL };
static const char *const preflights[] = { "no", "quick", "full", NULL };
static const char *const devices[] = { "cpu", "cuda", NULL };
static const char *const deterministics[] = { "no", "any-order", "yes", NULL };
static const char *const shrinks[] = { "keep", "dp", "any", NULL };
static const char *const slow_policies[] = { "warn", "exclude", NULL };
static const char *const regrows[] = { "no", "yes", "requeue", NULL };
static const char *const suspect_uses[] = { "ignore", "warn", "exclude", NULL };
static const char *const exclusives[] = { "no", "yes", "user", "mcs", NULL };
static const char *const bad_numbers[] = { "retry", "skip", "stop", NULL };
static const char *const presets[] = { "webhook", "slack", NULL };
static const char *const visibles[] = { "all", "own", NULL };
static const char *const shows[] = { "first", "all", "none", NULL };
static const char *const stop_signals[] = { "TERM", "INT", "USR1", "USR2", "HUP", NULL };
static const char *const engines[] = { "muster",
				       "megatron-core",
				       "megatron-core-graphs",
				       "megatron-core-2026",
				       "megatron-core-2024",
				       "megatron-2021",
				       "megatron-2022",
				       "fsdp-eager",
				       "fsdp-compiled",
				       "fsdp-async-tp",
				       "deepspeed",
				       NULL };
static const char *const losses[] = { "whole", "fused", NULL };
static const char *const levels[] = { "debug", "info", "warn", "error", NULL };
static const char *const transports[] = { "auto", "shm", "tcp", NULL };
static const char *const integrities[] = { "none", "checksum", "seal", NULL };
static const char *const bools[] = { "no", "yes", "false", "true", "off", "on", NULL };

#define SCHEDULE_DOC(name, row, word, doc) " " word ": " doc

/* Limits keep every product of sizes inside 63 bits. */
/* clang-format off */
const struct job_key job_keys[] = {
	TEXT(job, name, JOB_NAME, "muster", "Name of the run: its folder is run_dir/name. Default: the job file's name without .ini."),
	TEXT(job, run_dir, JOB_LINE, "runs", "Folder in which run folders are created. Relative paths, in this and all keys, start at the current folder."),
	INT(job, steps, "200", 1, 1e12, "Optimizer steps in the whole run."),
	{ FIELD(job, seed), .type = JOB_SEED, .def = "1", .doc = "Seed of everything random (initial weights, data order). The results do not depend on the layout." },
	ENUM(job, device, "cpu", devices, "The device that computes: the cores of the CPU, or NVIDIA GPUs."),
	ENUM(job, deterministic, "no", deterministics, "cuda: what gives the same bits. yes: a new run on the same machines, libraries and layout; algorithms are never chosen by measured times, but each library's first is taken, which may be some percent slower. no: the same run after a stop; algorithms are measured in the first step, and the choices are kept in the run folder, so that a new run can differ in the last bits. any-order: as no, but cuDNN may also compute the backward pass of attention with sums in any order if that is faster. Then each step can differ in the last bits. Wrong numbers of a step are then traced with less certainty."),
	BOOL(job, graphs, "yes", "cuda: record passes and updates as CUDA graphs once, with those collectives and messages that NCCL runs, and replay them. Passes with offload, evaluations with zero 3, and passes with some experts are not recorded: those in fp32, under cp, with a hidden or ffn / tp that is no multiple of 8, with micro × seq × experts_per_token of 2048 × experts or more, and under ep unless a capacity of at most 2 limits an expert to less than 2048 rows. The results are equal bit for bit, unless deterministic = any-order."),

	TEXT(job, program, JOB_LINE, "", "A program to run instead of the built-in training, with its arguments, such as python3 train.py --lr 1e-4: one process, called task, for each device. No shell reads the line; words are separated by blanks, and quotes keep blanks in a word. Keys of the model, the data and the optimizer have no effect then. Empty: the built-in training."),

	ENUM(program, visible, "all", visibles, "device = cuda: the GPUs that a task sees (CUDA_VISIBLE_DEVICES). all: those of all tasks of its node, so that LOCAL_RANK is the number of its own one. own: only its own."),
	ENUM(program, show, "first", shows, "The tasks whose output the terminal shows: that of rank 0, all with their ranks, or none. The logs have all output."),
	WORD(program, stop_signal, "TERM", stop_signals, "Signal that asks a task to save and exit. A task that uses muster_client is told by it, and gets the signal only after stop_grace."),
	REAL(program, stop_grace, "30", 0, 1e6, "Seconds for a task to exit after it was asked to. Then it is killed."),
	REAL(program, exit_timeout, "120", 0, 1e6, "Seconds for which the other tasks may be idle after one has exited with status 0. Then the run is lost, and the rank that exited is named. Tasks that compute or print are not idle. 0: without limit."),
	REAL(program, silence, "0", 0, 1e6, "Seconds without output of any task after which the run counts as hung. It finds hangs in which tasks keep their cores busy, such as those of NCCL. 0: never."),

	ENUM(model, family, "gpt2", families, "The kind of Transformer." SHAPE_FAMILIES(FAMILY_HELP)),
	INT(model, layers, "4", 1, 10000, "Transformer layers."),
	INT(model, hidden, "128", 1, 1048576, "Width of the model."),
	INT(model, heads, "4", 1, 8192, "Attention heads."),
	INT(model, kv_heads, "0", 0, 8192, "Key/value heads (grouped-query attention); must divide heads. 0: as many as heads."),
	INT(model, head_dim, "0", 0, 256, "Width of a head; must be even. 0: hidden / heads."),
	INT(model, ffn, "0", 0, 4194304, "Width of the feed-forward layers. 0: 4 × hidden (gpt2), 8/3 × hidden rounded up to 256 (llama, mixtral)."),
	INT(model, vocab, "256", 2, 16777216, "Number of token ids; 256 for bytes. It need not be a multiple of anything: checkpoints, losses and gradients have exactly these. cuda: rows of logits are padded in memory to a multiple of 128."),
	INT(model, seq, "128", 1, 16777216, "Tokens in a sequence."),
	ENUM(model, tie_head, "auto", ties, "Use the token embedding as output head. auto: yes for gpt2, no for the others."),
	ABOVE(model, norm_eps, "1e-05", 0, 1, "Number added to the variance in norms."),
	ABOVE(model, rope_theta, "10000", 0, 1e12, "Base of the rotary positions (llama, mixtral)."),
	ENUM(model, rope_scaling, "none", rope_scalings, "How rotary positions are stretched beyond the context length of pretraining."),
	ABOVE(model, rope_factor, "1", 0, 1e6, "Factor by which rope_scaling stretches."),
	ABOVE(model, rope_low, "1", 0, 1e6, "llama3: low frequency factor."),
	ABOVE(model, rope_high, "4", 0, 1e6, "llama3: high frequency factor."),
	INT(model, rope_original, "8192", 1, 16777216, "llama3: context length of pretraining, in tokens."),
	SHARE(model, dropout, "0", "Dropout rate of the embedding and of each sublayer's output."),
	SHARE(model, attn_dropout, "0", "Dropout rate of the attention weights."),
	INT(model, experts, "8", 1, 4096, "Experts in each layer (mixtral)."),
	INT(model, experts_per_token, "2", 1, 64, "Experts that process each token (mixtral)."),
	ENUM(model, router, "after", routers, "Whether the router applies its softmax after or before it chooses the experts."),
	REAL(model, aux_loss, "0.01", 0, 100, "Weight of the load-balancing loss, which is summed over layers."),
	REAL(model, z_loss, "0", 0, 100, "Weight of the loss that keeps the router's logits small."),
	REAL(model, capacity, "0", 0, 1000, "The most tokens that an expert takes, as a multiple of its fair share; further tokens are dropped. 0: no token is dropped."),
	ABOVE(model, init_std, "0.02", 0, 100, "Standard deviation of the initial weights."),

	{ .section = "parallel", .name = "auto", .offset = offsetof(struct job, parallel.automatic), .size = sizeof(bool), .type = JOB_BOOL,
	  .def = "no", .words = bools, .doc = "Let muster choose the keys that are not given: tp, cp, pp, dp, ep, chunks, stages, schedule, sp, zero, zero_shard; all of [recompute] and [offload]; batch.micro. The value auto leaves a single key to muster, such as pp = auto." },
	INT(parallel, tp, "1", 1, 1024, "Tensor parallel degree: ranks that split each layer. Keep it inside a node."),
	INT(parallel, cp, "1", 1, 1024, "Context parallel degree: ranks that split each sequence."),
	INT(parallel, pp, "1", 1, 1024, "Pipeline parallel degree: stages of consecutive layers."),
	INT(parallel, dp, "0", 0, 65536, "Data parallel degree: replicas that split the global batch. 0: as many as the devices allow."),
	INT(parallel, ep, "1", 1, 1024, "Expert parallel degree: ranks that split a layer's experts; must divide dp."),
	INT(parallel, chunks, "0", 0, 64, "Virtual stages per rank, for schedules that have several. 0: the least that the schedule takes."),
	TEXT(parallel, stages, JOB_LINE, "", "Number of layers of each stage in the order of the model, such as 3,5,4. Empty: balanced by cost. With another plan.engine than muster the first and the last stage can have 0, and do so by themselves if there are fewer layers than stages: they are the embedding and the head alone."),
	ENUM(parallel, schedule, "1f1b", schedule_words, "Order of the forward and backward passes in the pipeline." SCHEDULE_LIST(SCHEDULE_DOC)),
	BOOL(parallel, sp, "no", "Sequence parallelism: tp ranks split the norms and the residual stream too."),
	BOOL(parallel, overlap, "yes", "Overlap the transfers of tp and ZeRO with the matrix products."),
	INT(parallel, zero, "0", 0, 3, "ZeRO stage: 1 shards the optimizer state over dp, 2 also the gradients, 3 also the parameters."),
	ENUM(parallel, zero_shard, "all", zero_shards, "The replicas over which ZeRO shards: all of them, or those of one node, with copies across nodes."),
	ENUM(parallel, sync, "all-reduce", syncs, "How replicas synchronize. all-reduce: they all-reduce the gradients. server: each replica keeps a shard of the parameters and updates it as gradients arrive, so that no replica waits for one that is slightly behind."),
	INT(parallel, staleness, "1", 0, 1000000, "server: the most steps that a replica may be ahead of the slowest. 0: all replicas step together, and the results are those of all-reduce. Above 0, two runs differ."),

	ENUM(recompute, mode, "none", recomputes, "What the backward pass recomputes. none: nothing. selective: norms, activation functions and attention. full: whole layers."),
	INT(recompute, every, "1", 1, 10000, "Recompute every n-th layer."),

	BOOL(offload, activations, "no", "Keep the layers' activations in host memory until the backward pass (device = cpu: in a mapped file)."),
	BOOL(offload, optimizer, "no", "Keep the optimizer state in host memory (device = cpu: in a mapped file)."),

	ENUM(precision, dtype, "fp32", dtypes, "Type of weights and activations. Sums, gradients, master weights and optimizer state are always fp32."),
	ENUM(precision, fp8, "off", fp8s, "Use 8-bit numbers in the matrix products of linear layers, except experts, router and head. e4m3: everywhere. hybrid: e5m2 for gradients. Fast on GPUs of compute capability 8.9 and later."),
	ENUM(precision, fp8_scaling, "current", fp8_scalings, "How the scales of 8-bit inputs and gradients are found. current: from each tensor as it is. delayed: from the last 16 steps, so that the operation that computes a tensor also casts it, or else one pass does; bf16 only, and the first step uses current. Weights always use current."),
	REAL(precision, loss_scale, "0", 0, 1e12, "fp16: factor by which the loss is multiplied. 0: dynamic."),
	INT(precision, loss_scale_window, "1000", 1, 1e9, "Steps without overflow after which a dynamic loss scale doubles."),
	BOOL(precision, stochastic_rounding, "no", "Round weights from their fp32 masters stochastically instead of to the nearest."),

	INT(batch, micro, "4", 1, 1048576, "Sequences in a micro-batch, which a rank processes at once."),
	INT(batch, global, "32", 1, 1073741824, "Sequences in an optimizer step, over all ranks; must be a multiple of micro × dp."),
	INT(batch, logits, "4096", 1, 1048576, "cuda: MiB that a chunk of logits may take. The head computes the logits and their gradient in chunks of tokens, and each chunk reads and writes the gradient of all the head's weights, so larger chunks are faster. If the memory does not suffice, the plan halves this number until it does, but not below 128."),

	ENUM(optimizer, kind, "adamw", optimizer_words, "The optimizer."),
	SHARE(optimizer, momentum, "0.9", "SGD's momentum; muon's is always 0.95."),
	ABOVE(optimizer, lr, "0.001", 0, 100, "Highest learning rate."),
	REAL(optimizer, min_lr, "0", 0, 100, "Learning rate at the end of the decay."),
	INT(optimizer, warmup, "0", 0, 1e12, "Steps in which the learning rate rises linearly to lr."),
	ENUM(optimizer, schedule, "cosine", lr_schedules, "How the learning rate falls from lr to min_lr."),
	INT(optimizer, decay_steps, "0", 0, 1e12, "Step at which the learning rate reaches min_lr. 0: job.steps."),
	INT(optimizer, cooldown, "0", 0, 1e12, "wsd: last steps, in which the learning rate falls from lr to min_lr."),
	SHARE(optimizer, beta1, "0.9", "Decay of the gradient's mean; adamw and muon use it."),
	SHARE(optimizer, beta2, "0.95", "Decay of the gradient's square; adamw and muon use it."),
	ABOVE(optimizer, eps, "1e-08", 0, 1, "Term against division by zero; adamw and muon use it."),
	REAL(optimizer, weight_decay, "0.1", 0, 100, "Weight decay of matrices; vectors have none."),
	REAL(optimizer, clip, "1", 0, 1e9, "Gradients with a larger global norm are scaled down to it. 0: no clipping."),

	TEXT(data, path, JOB_LINE, "", "Packed tokens: the prefix of PREFIX.bin and PREFIX.idx (muster data pack), an llm.c FILE.bin, or several with weights: 0.7 A 0.3 B. Required for training."),
	REAL(data, validation, "0.05", 0, 0.5, "Share of the samples that is held out for evaluation."),
	INT(data, eval_every, "0", 0, 1e12, "Steps between evaluations. 0: never."),
	INT(data, eval_batches, "1", 1, 1e9, "Global batches that an evaluation reads."),
	ENUM(data, documents, "mix", documents, "Whether a token attends to other documents of its sequence. mix: it does. mask: it does not."),
	INT(data, prefetch, "2", 0, 1024, "Number of steps whose tokens are read ahead."),
	TEXT(data, skip, JOB_LINE, "", "Samples that training skips: positions in the order of the data, from 0, such as 320-335,640. They count as read: the next sample takes their place in the batch. Rollbacks add to this list (health.bad_numbers). Evaluations are not affected."),

	TEXT(checkpoint, dir, JOB_LINE, "", "Folder of the checkpoints, or s3://BUCKET/PREFIX in an object store; no other run may use it. Empty: ckpt in the run folder."),
	INT(checkpoint, every, "100", 0, 1e12, "Steps between checkpoints. 0: only when stopping and at the end."),
	INT(checkpoint, keep, "3", 0, 1e9, "Number of checkpoints to keep; older ones are deleted. 0: keep all."),
	INT(checkpoint, keep_every, "0", 0, 1e12, "Checkpoints whose step is a multiple of it are never deleted, in dir and in remote. 0: none is kept beyond keep and remote_keep."),
	TEXT(checkpoint, local, JOB_LINE, "", "Folder on each node, on its own disk or in its memory, for checkpoints that are written more often than those in dir. %N stands for the node's name. A run that restarts uses them while all nodes that hold parts of them are there. Empty: none."),
	INT(checkpoint, local_every, "10", 1, 1e12, "Steps between checkpoints in local. One that falls due while a checkpoint is being written to dir is left out."),
	INT(checkpoint, local_keep, "1", 1, 1e9, "Number of checkpoints to keep in local. While one is written, there is one more."),
	INT(checkpoint, memory_every, "-1", -1, 1e12, "Steps between copies of the state in the ranks' memory: each rank keeps its own part, and a copy of another node's. After a loss the run continues from there instead of the last checkpoint, with restart.warm. -1: as often as pays for the faults that restart.node_mtbf expects, but so that it costs less than 1 % of the time, measured in the run, if the nodes have the memory; with parallel.sync = server never. 0: never."),
	INT(checkpoint, copies, "1", 0, 1, "Copies of each rank's part in the memory of other nodes, or of other processes if there is one node. 0: each rank keeps only its own part, which is lost with it."),
	TEXT(checkpoint, remote, JOB_LINE, "", "Where checkpoints are copied to behind training, from dir: s3://bucket/prefix, or a folder. Only the node where muster runs and that of rank 0 need access. Empty: nowhere."),
	INT(checkpoint, remote_every, "0", 0, 1e12, "Copies the checkpoints of dir whose step is a multiple of it, and that of the last step. 0: every one."),
	INT(checkpoint, remote_keep, "3", 0, 1e9, "Number of checkpoints to keep in remote; older ones are deleted. A checkpoint stays in dir until it is copied, or until this many newer ones are there to be copied. 0: keep all."),
	REAL(checkpoint, remote_bandwidth, "0", 0, 1e15, "Bytes per second that copying to remote may use. 0: no limit."),
	REAL(checkpoint, remote_wait, "600", 0, 1e6, "Seconds that a run waits at its end for the copies to remote. The next run continues with what is left."),
	ABOVE(checkpoint, node_bandwidth, "1", 0, 1e6, "For predictions: GB/s that one node writes to or reads from the checkpoints' storage while all nodes do. 1: Llama 3's share (arXiv 2407.21783, section 3.3.1)."),
	ABOVE(checkpoint, bandwidth, "2000", 0, 1e9, "For predictions: GB/s of the checkpoints' storage for all nodes together. 2000: what Llama 3's storage sustained."),
	TEXT(checkpoint, resume, JOB_LINE, "auto", "Where a run starts. auto: from the run's last valid checkpoint, or from the beginning if it has none. none: from the beginning; a run that has checkpoints is refused. Otherwise the folder of a checkpoint, or its s3:// address, for a run that has none of its own."),

	ENUM(launch, launcher, "auto", launchers, "Who starts the agents. auto: slurm inside an allocation, otherwise local."),
	ENUM(launch, pmix, "auto", pmixes, "slurm: whose PMIx server the agents use. slurm: that of Slurm's plugin. muster: one of muster's own on each node, started by a helper. auto: Slurm's if it has the plugin, otherwise muster's."),
	INT(launch, devices, "0", 0, 65536, "local: the most agents on this host. 0: as many as the degrees need."),
	TEXT(launch, threads, JOB_LINE, "0", "Threads per agent, or a list for each rank, such as 2,1 or 2*8,1*24. 0: cores / agents, at least 1."),
	TEXT(launch, speeds, JOB_LINE, "", "Relative speed of each rank's device, such as 2,1,1,1; 4*32,11*64: 32 devices of speed 4, then 64 of speed 11. Unequal devices get unequal stages and micro-batches. muster plan --auto writes such a list for nodes with unlike devices, in the order of the nodes. Empty: the numbers of threads, if they differ."),
	ENUM(launch, bind, "auto", binds, "Binding of agents to cores. auto: core, if there are enough cores for all agents' threads."),
	ENUM(launch, preflight, "no", preflights, "How the nodes are checked before the first start, all at the same time. no: they are not. quick: as muster doctor checks them. full: muster also measures the products, the memory, the checkpoints' folder and the network of each node and compares nodes of the same kind; this takes some seconds, at most health.preflight_timeout. A node that fails is treated as a lost one: a spare replaces it, the layout changes as restart.shrink says, or the job is requeued without it."),
	TEXT(launch, cluster, JOB_LINE, "auto", "Machine to plan for: auto, local, slurm, or a preset such as dgx-h100:128 (128 nodes). A run is always planned for the machine that it runs on."),
	TEXT(launch, calibration, JOB_LINE, "auto", "Measurements of this host and of GPUs for planning, as muster bench calibrate writes them: auto (the default file, if it exists; its figures of processors only if they are of this machine), none, or a file. Nodes with a measured model of GPU take its figures, wherever it was measured."),

	RANGE(slurm, nodes, "1", 1, 100000, "Nodes to request: a number, or the fewest and the most, such as 3-4. The run starts on as many as Slurm has. If these cannot hold the degrees, the layout changes as restart.shrink says, and the global batch stays."),
	INT(slurm, spares, "0", 0, 100000, "Nodes to request in addition to the most of nodes. They stay unused until a node is lost, and then replace it."),
	INT(slurm, gpus_per_node, "0", 0, 1024, "GPUs to request on each node. 0: none."),
	INT(slurm, cpus_per_task, "1", 1, 4096, "Cores to request for each agent."),
	TEXT(slurm, time, JOB_TIME, "", "Time limit: minutes, hours:minutes:seconds, days-hours. Empty: the partition's limit."),
	TEXT(slurm, partition, JOB_ATOM, "", "Partition. Empty: the cluster's default."),
	TEXT(slurm, account, JOB_ATOM, "", "Account to charge. Empty: your default account."),
	TEXT(slurm, qos, JOB_ATOM, "", "Quality of service. Empty: the default."),
	TEXT(slurm, constraint, JOB_ATOM, "", "Features that the nodes must have. Empty: any node."),
	TEXT(slurm, reservation, JOB_ATOM, "", "Reservation to run in. Empty: none."),
	TEXT(slurm, gres, JOB_ATOM, "", "Generic resources of each node as sbatch's --gres takes them, such as gpu:h100:8. GPUs in it count as gpus_per_node, which is 0 then. Empty: none."),
	TEXT(slurm, mem, JOB_ATOM, "", "Memory to request on each node, such as 200G; a number without a unit is in MB, and 0 is all of it. Empty: the partition's default."),
	WORD(slurm, exclusive, "no", exclusives, "Whether other jobs may share the nodes. yes: none may. user: yours may. mcs: those with the same MCS label may. no: the partition decides."),
	TEXT(slurm, nodelist, JOB_ATOM, "", "Nodes that the job must have, such as n[1-4]; Slurm adds others if nodes is larger. Empty: any."),
	TEXT(slurm, exclude, JOB_ATOM, "", "Nodes that the job must not get, such as n[7,9]. Empty: none."),
	TEXT(slurm, switches, JOB_ATOM, "", "The most leaf switches for the nodes, and how long to wait for that, such as 1@2:00:00. Empty: any number."),
	TEXT(slurm, licenses, JOB_ATOM, "", "Licenses, such as name:2. Empty: none."),
	TEXT(slurm, dependency, JOB_ATOM, "", "When the job may start, such as afterany:123, or singleton: after your other jobs of the same name. Empty: at once."),
	TEXT(slurm, mail_user, JOB_ATOM, "", "Address to which Slurm sends mail. Empty: yours, if mail_type is given."),
	TEXT(slurm, mail_type, JOB_ATOM, "", "Events of which Slurm sends mail, such as BEGIN,END,FAIL,TIME_LIMIT. Empty: none."),
	TEXT(slurm, comment, JOB_LINE, "", "A comment about the job for people and for the site's scripts. Empty: none."),
	TEXT(slurm, options, JOB_LINE, "", "Other options of sbatch, separated by blanks, such as --nice=100 --tmp=20G. Options that muster itself decides are refused."),
	BOOL(slurm, chain, "no", "Whether each job queues the next one of the run after its first step, for runs longer than the time limit. The next one starts when this one has ended. It is cancelled when the run is done, has failed, or a person stops it."),
	BOOL(slurm, progress_comment, "yes", "Write into the job's comment, after a checkpoint and at most once a minute, when it was saved and when the next one is due, for scripts that choose which job to preempt. A comment of yours is never replaced."),
	INT(slurm, signal_before, "120", 0, 65535, "Seconds before the time limit at which to checkpoint and stop. A run whose checkpoints take longer stops earlier."),
	BOOL(slurm, requeue, "yes", "Let the job begin again in the queue after a node failure, a preemption, or its time limit. Slurm or muster requeues it."),
	TEXT(slurm, rest, JOB_ATOM, "", "Slurm's REST interface for muster submit and muster queue, on hosts without Slurm's commands: unix:/path of slurmrestd's socket, https://host:port, or http://localhost:port. The variable MUSTER_SLURM_REST replaces it. Empty: Slurm's commands."),
	TEXT(slurm, rest_token_file, JOB_LINE, "", "File with the token (scontrol token) for slurm.rest; it must be yours with mode 0600. Empty: the variable SLURM_JWT."),
	TEXT(slurm, rest_ca_file, JOB_LINE, "", "Certificates to trust for slurm.rest = https://…. Empty: those of the system."),

	INT(restart, max_restarts, "10", 0, 1e6, "Restarts before giving up."),
	REAL(restart, backoff, "1", 0, 60, "Seconds before the second consecutive restart without progress; it doubles each time, up to 60."),
	INT(restart, max_futile, "3", 1, 1e6, "Consecutive restarts without a further step before giving up."),
	TEXT(restart, retry_on, JOB_LINE, "any", "job.program: the ends of a task after which a restart is tried, separated by commas: any, exit statuses such as 1 or 64-78, signals such as SIGKILL, or signal for all of them. An item that begins with ! is excluded: any, !2."),
	BOOL(restart, warm, "yes", "Whether the agents of the other ranks live on after a loss: only the missing ones are started, and all continue as the next generation. A rank that hangs or has failed by itself is always replaced. After two such restarts in a row without progress all agents are started again."),
	REAL(restart, regroup_timeout, "3", 0.1, 1e6, "Seconds for an agent that lives on to leave the lost generation. One that takes longer is replaced."),
	REAL(restart, hang_timeout, "300", 0, 1e6, "Seconds without progress of any rank after which the run counts as hung. 0: never. A stop may take as long, but at least 2 minutes. In training each phase learns a shorter limit from the run: 20 times the 99th percentile of its time between two signs of progress, but at least hang_floor. A program that reports steps makes progress only by them."),
	REAL(restart, hang_floor, "60", 0.1, 1e6, "The least number of seconds that a learned limit may be. It doubles after each hang that a learned limit has found. hang_timeout or more: no limit is learned."),
	REAL(restart, silent_timeout, "15", 1, 1e6, "Seconds without a message of an agent after which its rank counts as lost. Agents send one every half second, in a world of more than 2,000 ranks less often, also in a long step or checkpoint. A machine whose virtual nodes are paused needs more."),
	REAL(restart, stacks_timeout, "5", 0, 600, "Seconds at most in which ranks that hang or are silent are examined before they are ended: the states and stacks of their threads, which go to trace/ of the run folder. Stacks need gdb or eu-stack on the nodes. 0: ranks are not examined."),
	REAL(restart, start_timeout, "120", 1, 1e6, "Seconds until every agent must have connected after its start."),
	REAL(restart, drain_timeout, "10", 1, 1e6, "Seconds for killed or finished processes to end. After that they are killed again."),
	REAL(restart, handshake_timeout, "10", 1, 1e6, "Seconds for a connection to the supervisor to prove that it is an agent of the run."),
	ENUM(restart, shrink, "any", shrinks, "What may change if nodes are lost and no spare is left. keep: nothing; the run waits for nodes, or is requeued. dp: the data-parallel degree. any: the layout is planned again. The global batch never changes."),
	ENUM(restart, regrow, "yes", regrows, "What a run that has shrunk does at a checkpoint if a node is back. A program that reports no checkpoints (muster_client) grows when it is started again. no: it stays small. yes: it grows onto nodes of its allocation. requeue: it is also requeued if a node that has left the allocation is free."),
	INT(restart, exclude_after, "2", 0, 1e6, "Faults of one node after which it is not used any more; a node without a fault for 24 hours begins at 0 again. 0: never. A node that cannot be reached is not used in any case."),
	REAL(restart, patience, "600", 0, 1e6, "Seconds to wait for lost nodes that may return, and for slurmctld or munged, before giving up."),
	REAL(restart, node_mtbf, "6300", 0, 1e9, "For predictions: mean hours between failures of one node that stop the run. 6300: Llama 3's, 419 in 54 days of 2,048 nodes (arXiv 2407.21783, section 3.3.4). 0: no node fails."),
	REAL(restart, respawn, "30", 0, 1e6, "For predictions: seconds from a failure until the agents run again and load the last checkpoint. 30: communicators of 10,000 GPUs (MegaScale, arXiv 2402.15627, section 3.5)."),

	WORD(network, backend, "auto", transports, "Transport between ranks. auto: shared memory inside a host, TCP between hosts. shm, tcp: only that one."),
	TEXT(network, interface, JOB_ATOM, "", "Network interface to use between nodes, such as ib0. Empty: the address of the host's name."),
	INT(network, sockets, "0", 0, 16, "TCP connections between two ranks on different hosts. Several may use a fast network better. 0: the default."),
	WORD(network, integrity, "none", integrities, "Protection of the data between hosts, in addition to TCP's 16-bit checksum: checksum detects accidental changes, losses and repetitions; seal also encrypts, against anyone who can read or change the traffic. Damaged data ends the generation, and the run continues from its last checkpoint. muster bench comm --integrity measures the cost."),
	ABOVE(network, timeout, "600", 0, 1e6, "Seconds that a collective operation may wait for a rank."),

	REAL(health, slow_factor, "1.5", 0, 1000, "How many times as long as its peers a rank may need for a step, without its waits for other ranks, before it counts as slow. Its peers are the ranks of its pipeline stage on nodes of its kind. A rank that is slow for three windows is named, with the likely reason. 0: ranks are not compared."),
	REAL(health, slow_window, "10", 0.1, 1e6, "Seconds of a window in which ranks are compared. A window has at least three steps."),
	ENUM(health, suspects, "warn", suspect_uses, "What muster does with the list of suspect nodes, which it keeps across runs (muster nodes). ignore: it neither reads nor writes it. warn: muster submit names the suspects of the cluster, and muster run prefers other nodes for its ranks if the job has spares. exclude: muster submit also excludes them."),
	TEXT(health, nodes_dir, JOB_LINE, "", "Folder of the list of suspect nodes. Users may share one (mode 1777). Empty: the variable MUSTER_NODES_DIR, otherwise ~/.cache/muster/nodes."),
	ENUM(health, slow_policy, "warn", slow_policies, "What happens when a rank is slow. warn: it is named, and the run goes on. exclude: the run writes a checkpoint and goes on without the rank's node, on a spare node or on what restart.shrink permits, if that is predicted to be faster."),
	REAL(health, pause, "2", 0, 1e6, "An agent that is silent for this many seconds and then continues is reported. The limit is higher in a world of more than 2,000 ranks, whose agents send messages less often. 0: never."),
	INT(health, compare_every, "20", -1, 1e12, "Steps between comparisons of the weights of ranks that must hold the same bits. They are also compared before each checkpoint. A difference is the sign of a fault of hardware: the ranks and their nodes are named, and the run continues from its last checkpoint. 0: before checkpoints only; -1: never."),
	REAL(health, preflight_factor, "2", 1, 1000, "launch.preflight = full: a node fails if one of its figures is worse than the median of its peers by more than this factor. If the time allows it, bad figures are measured twice. Its peers are the other nodes of its kind. Figures of the checkpoints' folder may differ by the square of it."),
	REAL(health, preflight_timeout, "20", 5, 3600, "launch.preflight = full: the most seconds that the measurements take after the nodes have started. A node that has not answered by then has failed."),

	ENUM(health, bad_numbers, "retry", bad_numbers, "What to do if the loss or the norm of the gradients is NaN or infinite; with skip and stop also at a spike. The step updates nothing. retry: restart from the last checkpoint with the same samples, which helps if a device erred. skip: continue from the last checkpoint without the samples of the step; it does not count as a restart. stop: the run fails. In fp16 a dynamic loss scale handles overflow before."),
	REAL(health, spike_z, "10", 0, 1e6, "bad_numbers = skip or stop: a step is a spike if its loss, or the logarithm of its gradient norm, is more than this many standard deviations above the median of the last spike_window steps. The deviation is that of a normal distribution with the same median of absolute deviations, and at least 2 % of the median loss or 0.25: with 10 a spike is at least 1.2 times the usual loss, or 12 times the usual norm. 0: spikes are not looked for."),
	INT(health, spike_window, "128", 8, 256, "Good steps that a step is compared with. There is no spike before half as many."),
	INT(health, max_skips, "5", 0, 100, "bad_numbers = skip: rollbacks in the whole run. The next bad step ends it."),
	INT(health, skip_before, "0", 0, 1e6, "bad_numbers = skip: batches before the bad one that are skipped with it. The run then continues from the last checkpoint before them; later ones are renamed. If there is none, it continues from the oldest one, and skips what comes after it."),

	REAL(warn, z, "6", 0, 1e6, "Warn if the loss, or the logarithm of the gradient norm, is more than this many standard deviations above the median of the last 128 steps: for the loss in 2 of 20 steps, for the norm in 3. The deviation is the one of health.spike_z. Steps of the warm-up are left out. 0: never."),
	REAL(warn, data, "0.2", 0, 1, "Warn if more than this share of a step is waiting for samples, in 18 of 20 steps. 0: never."),
	REAL(warn, slow, "1.1", 0, 1000, "Warn if a rank needs more than this many times as long per step as its peers, for 20 steps and three windows of health.slow_window. Time in which it had no core does not count, and agents that share cores are not judged. 0: never."),
	REAL(warn, memory, "0.95", 0, 1, "Warn if a rank has used more than this share of the memory that muster plan gives it. 0: never."),
	REAL(warn, predicted, "2", 0, 1e6, "Warn if a step takes more than this many times as long as predicted, in 45 of 50 steps. Checkpoints and time without a core do not count, and agents that share cores are not judged. 0: never."),

	TEXT(notify, on, JOB_LINE, JOB_NOTICES_DEFAULT, "What to notify of, separated by commas: " JOB_NOTICES_HELP " Each goes to the url and to the command."),
	TEXT(notify, url, JOB_LINE, "", "Address to which notifications are posted as JSON: https://…, or http:// to this host. It is written into the run folder, so an address that is itself a secret belongs into url_file. Empty: the variable MUSTER_NOTIFY_URL; if it is not set, nothing is posted."),
	TEXT(notify, url_file, JOB_LINE, "", "File with the address, in place of url; it must be yours with mode 0600. Empty: url."),
	ENUM(notify, preset, "webhook", presets, "The form of the JSON. webhook: an object of all fields. slack: the message of an incoming webhook of Slack, or of a service that takes the same."),
	TEXT(notify, secret_file, JOB_LINE, "", "File with a token that is sent as Authorization: Bearer; it must be yours with mode 0600. Empty: the variable MUSTER_NOTIFY_TOKEN; if it is not set, no token is sent."),
	TEXT(notify, ca_file, JOB_LINE, "", "Certificates to trust for https. Empty: those of the system."),
	TEXT(notify, command, JOB_LINE, "", "Program to run for each notification, with its arguments, separated by blanks. No shell reads them. The JSON is its standard input, its output is dropped, and after 10 seconds it is killed with its process group. Empty: none."),

	INT(log, every, "10", 1, 1e9, "Steps between progress lines."),
	WORD(log, level, "info", levels, "Lowest level of the lines in the logs."),
	REAL(log, keep, "64", 0, 1e6, "MiB that the log of each rank may take with its earlier parts. Before it takes more, its oldest lines are removed. 0: without bound."),
	TEXT(log, local, JOB_LINE, "auto", "Folder on each node, on its own disk, where the logs of its ranks stay until somebody asks for them (muster logs RUN --rank R) or the rank fails; then they move to the run folder. That of rank 0 is always there. %N stands for the node's name. auto: /tmp/muster-UID with more than 512 ranks, where folders that were not used for 10 days are removed; otherwise none. none: all logs are in the run folder."),

	REAL(metrics, keep, "1", 0.001, 1e6, "GiB that metrics.jsonl, events.jsonl, health.jsonl and time.jsonl may take with their earlier parts. Before they take more, old lines are thinned: of old steps, one of 8 stays, of older ones one of 64, and so on."),
	BOOL(metrics, tensorboard, "no", "Write event files of TensorBoard to tensorboard/ of the run folder: losses, gradient norm, learning rate, speed, the parts of a step, the keys of the job and the plan."),
	TEXT(metrics, listen, JOB_ATOM, "", "ADDRESS:PORT at which muster run answers Prometheus, such as 127.0.0.1:9400. ADDRESS is an address, a host name or a network interface of the host that muster run is on; port 0: a free one, which is printed. Without a token only a loopback address is used. Empty: nowhere."),
	TEXT(metrics, token_file, JOB_LINE, "", "File with the token that a scrape of metrics.listen must show, as a bearer token; it must be yours with mode 0600. Empty: the variable MUSTER_METRICS_TOKEN, if it is set."),
	TEXT(metrics, textfile, JOB_LINE, "", "File for the collector of textfiles of node_exporter, replaced at most every 5 seconds; its name ends in .prom. Each run needs its own. Empty: none."),
	BOOL(metrics, ranks, "no", "Whether listen and textfile also have series of each rank: two per rank."),

	RANGE(trace, steps, "0", 0, 1e12, "Steps that every rank records in detail, such as 40-44: its phases, passes and the operations of its groups. muster trace RUN -o FILE makes a picture of them for Perfetto. 0: none. A running run records steps also on request: muster trace RUN --next N."),
	ENUM(plan, engine, "muster", engines, "The program whose steps muster plan predicts. Only its own engine, muster, can run. megatron-core: Megatron-Core with Transformer Engine and cuDNN's attention, also below NeMo and Megatron-Bridge. megatron-core-graphs: the same with CUDA graphs of attention and the router, which only matters to mixtures. megatron-core-2026: the same as of June 2026 on Blackwell, with fused experts and hidden all-to-alls. megatron-core-2024: Megatron-Core with FlashAttention-2. megatron-2021, megatron-2022: Megatron-LM of these years. fsdp-eager: PyTorch's FSDP without a compiler. fsdp-compiled: with torch.compile. fsdp-async-tp: the same with asynchronous tensor parallelism. deepspeed: ZeRO-3 of DeepSpeed."),
	ENUM(plan, loss, "whole", losses, "The memory of the loss in the program that plan.engine names, unless it is muster. whole: with fp32 copies of all logits. fused: in one pass over 2-byte logits."),
};
/* clang-format on */

const int job_n_keys = sizeof job_keys / sizeof *job_keys;

_Static_assert(sizeof job_keys / sizeof *job_keys <= JOB_KEYS_MAX, "raise JOB_KEYS_MAX");

int job_key_find(const char *section, const char *name)
{
	for (int i = 0; i < job_n_keys; i++)
		if (!strcmp(job_keys[i].section, section) && !strcmp(job_keys[i].name, name))
			return i;
	return -1;
}

int job_key_at(size_t offset)
{
	for (int i = 0; i < job_n_keys; i++)
		if (job_keys[i].offset == offset)
			return i;
	return -1;
}

static const struct {
	size_t offset;
	enum job_open bit;
	const char *word;
} opens[] = {
	{ offsetof(struct job, parallel.tp), OPEN_TP, "parallel.tp=auto" },
	{ offsetof(struct job, parallel.cp), OPEN_CP, "parallel.cp=auto" },
	{ offsetof(struct job, parallel.pp), OPEN_PP, "parallel.pp=auto" },
	{ offsetof(struct job, parallel.dp), OPEN_DP, "parallel.dp=auto" },
	{ offsetof(struct job, parallel.ep), OPEN_EP, "parallel.ep=auto" },
	{ offsetof(struct job, parallel.chunks), OPEN_CHUNKS, "parallel.chunks=auto" },
	{ offsetof(struct job, parallel.stages), OPEN_STAGES, "parallel.stages=auto" },
	{ offsetof(struct job, parallel.schedule), OPEN_SCHEDULE, "parallel.schedule=auto" },
	{ offsetof(struct job, parallel.sp), OPEN_SP, "parallel.sp=auto" },
	{ offsetof(struct job, parallel.zero), OPEN_ZERO, "parallel.zero=auto" },
	{ offsetof(struct job, parallel.zero_shard), OPEN_ZERO_SHARD, "parallel.zero_shard=auto" },
	{ offsetof(struct job, recompute.mode), OPEN_MODE, "recompute.mode=auto" },
	{ offsetof(struct job, recompute.every), OPEN_EVERY, "recompute.every=auto" },
	{ offsetof(struct job, offload.activations), OPEN_ACTIVATIONS, "offload.activations=auto" },
	{ offsetof(struct job, offload.optimizer), OPEN_OPTIMIZER, "offload.optimizer=auto" },
	{ offsetof(struct job, batch.micro), OPEN_MICRO, "batch.micro=auto" },
};
enum { OPENS = sizeof opens / sizeof *opens };
_Static_assert((int)OPENS == (int)JOB_AUTO_MAX, "every key that may be open has its word");

uint32_t job_key_open(const struct job_key *key)
{
	for (int i = 0; i < OPENS; i++)
		if (opens[i].offset == key->offset)
			return opens[i].bit;
	return 0;
}

int job_auto_words(const char *words[JOB_AUTO_MAX])
{
	for (int i = 0; i < OPENS; i++)
		words[i] = opens[i].word;
	return OPENS;
}

bool job_section_known(const char *section)
{
	for (int i = 0; i < job_n_keys; i++)
		if (!strcmp(job_keys[i].section, section))
			return true;
	return false;
}
