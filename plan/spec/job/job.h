/*
 * job — the job file, in which the user describes a job.
 *
 * One table of keys (keys.c) drives parsing, ranges, defaults, the nearest-key hint, `muster run
 * --help`, and writing a resolved job. Every refusal is one line, `file:line: [section] key: cause;
 * remedy`, with ERR_USAGE. Words from the command line are named `command line: section.key: …`.
 * To add a key: add a field here, a row in plan/spec/job/keys.c, its rules in a check_*.c file of
 * this folder, and a broken job file with its refusal in tests/cli/jobs/bad/. A key that is an
 * option of sbatch also has a row in plan/spec/job/sbatch.c.
 *
 * The file has `[section]` lines and `key = value` lines; blanks around either do not count. A
 * comment is a line that begins with ';' or '#', or what follows a blank and ';' after a value.
 * Values have no quotes and no escapes. A key may appear once; a missing key has its default. Text
 * is UTF-8. Relative paths are kept as typed: they start at the directory in which muster is
 * called, not at the directory of the job file.
 */
#ifndef MUSTER_PLAN_SPEC_JOB_JOB_H
#define MUSTER_PLAN_SPEC_JOB_JOB_H

#include "base/buf.h"
#include "base/err.h"
#include "plan/spec/model/family.h"   /* enum job_family */
#include "plan/spec/optimizers.h"     /* enum job_optimizer */
#include "plan/spec/schedule/kinds.h" /* enum job_schedule */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { JOB_SHORT = 32, JOB_TEXT = 256, JOB_PATH = 1024, JOB_PROGRAM = 2000 };

/* auto: as the family does (gpt2: yes; others: no) */
enum job_tie { TIE_AUTO, TIE_YES, TIE_NO };
enum job_rope_scaling { ROPE_PLAIN, ROPE_LINEAR, ROPE_LLAMA3 };
enum job_router {
	ROUTER_SOFTMAX_AFTER,
	ROUTER_SOFTMAX_BEFORE
}; /* whether the softmax is after or before the choice of the top k */
enum job_zero_shard { ZERO_SHARD_ALL, ZERO_SHARD_NODE };
enum job_sync { SYNC_ALL_REDUCE, SYNC_SERVER };
enum job_recompute { RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL };
enum job_dtype { DTYPE_FP32, DTYPE_BF16, DTYPE_FP16 };
enum job_fp8_scaling { FP8_SCALING_CURRENT, FP8_SCALING_DELAYED };
enum job_fp8 { FP8_OFF, FP8_ALL_E4M3, FP8_HYBRID }; /* hybrid: e5m2 for gradients */
enum job_lr_schedule { LR_COSINE, LR_LINEAR, LR_CONSTANT, LR_INVERSE_SQRT, LR_WSD };
/* whether a token attends to other documents */
enum job_documents { DOCUMENTS_MIX, DOCUMENTS_MASK };
/* auto: slurm inside an allocation */
enum job_preflight { PREFLIGHT_NO, PREFLIGHT_QUICK, PREFLIGHT_FULL };
enum job_launcher { LAUNCHER_AUTO, LAUNCHER_LOCAL, LAUNCHER_SLURM };
enum job_pmix { PMIX_AUTO, PMIX_SLURM, PMIX_MUSTER };
/* auto: to cores if there are enough for all agents' threads */
enum job_bind { BIND_AUTO, BIND_NONE, BIND_CORE };
enum job_device { DEVICE_CPU, DEVICE_CUDA };
/* What gives the same bits on a GPU: the same run after a stop, nothing, or every run. */
enum job_deterministic { DETERMINISTIC_NO, DETERMINISTIC_ANY_ORDER, DETERMINISTIC_YES };
/* What may change if fewer devices are left: nothing, dp, or the whole layout. */
enum job_shrink { SHRINK_KEEP, SHRINK_DP, SHRINK_ANY };
/* What a run does about the node of a slow rank: nothing, or it goes on without it. */
enum job_slow_policy { SLOW_WARN, SLOW_EXCLUDE };
/* yes: onto nodes of the allocation; requeue: also onto nodes that have left it */
enum job_regrow { REGROW_NO, REGROW_YES, REGROW_REQUEUE };
/* What a run does at NaN, infinity or a spike: repeat the samples, skip them, or stop. */
enum job_bad_numbers { BAD_NUMBERS_RETRY, BAD_NUMBERS_SKIP, BAD_NUMBERS_STOP };
/* The list of suspect nodes: not kept; named; excluded from submitted jobs. */
enum job_suspects { SUSPECTS_IGNORE, SUSPECTS_WARN, SUSPECTS_EXCLUDE };
/* The programs whose steps the planner predicts (plan/cost/engine.h), in the order of
 * cost_engines. */
enum job_engine {
	ENGINE_MUSTER,
	ENGINE_MEGATRON_CORE,
	ENGINE_MEGATRON_CORE_GRAPHS,
	ENGINE_MEGATRON_CORE_2026,
	ENGINE_MEGATRON_CORE_2024,
	ENGINE_MEGATRON_2021,
	ENGINE_MEGATRON_2022,
	ENGINE_FSDP_EAGER,
	ENGINE_FSDP_COMPILED,
	ENGINE_FSDP_ASYNC_TP,
	ENGINE_DEEPSPEED,
	JOB_ENGINES
};
/* How such a program computes the loss: with fp32 copies of all logits, or in one pass over 2-byte
 * logits. */
enum job_loss { LOSS_WHOLE, LOSS_FUSED };
/* The devices that a task of the program sees: all of its node, or its own. */
enum job_visible { VISIBLE_ALL, VISIBLE_OWN };
/* Whose output the terminal shows. */
enum job_show { SHOW_FIRST, SHOW_ALL, SHOW_NONE };
/* The form of a notification's body. */
enum job_preset { PRESET_WEBHOOK, PRESET_SLACK };
/* Keys that a search may decide (plan/search): bits of struct job's `open`. */
enum job_open {
	OPEN_TP = 1 << 0,
	OPEN_CP = 1 << 1,
	OPEN_PP = 1 << 2,
	OPEN_DP = 1 << 3,
	OPEN_EP = 1 << 4,
	OPEN_CHUNKS = 1 << 5,
	OPEN_STAGES = 1 << 6,
	OPEN_SCHEDULE = 1 << 7,
	OPEN_SP = 1 << 8,
	OPEN_ZERO = 1 << 9,
	OPEN_ZERO_SHARD = 1 << 10,
	OPEN_MODE = 1 << 11,
	OPEN_EVERY = 1 << 12,
	OPEN_ACTIVATIONS = 1 << 13,
	OPEN_OPTIMIZER = 1 << 14,
	OPEN_MICRO = 1 << 15,
	OPEN_ALL = (1 << 16) - 1,
	/* The keys that describe a layout; the others trade time for memory. */
	OPEN_LAYOUT = OPEN_TP | OPEN_CP | OPEN_PP | OPEN_DP | OPEN_EP | OPEN_CHUNKS | OPEN_STAGES |
		      OPEN_SCHEDULE | OPEN_SP | OPEN_ZERO | OPEN_MICRO,
};

/* A number of which any in [min, max] will do. */
struct job_range {
	int64_t min, max;
};

struct job {
	struct {
		char name[JOB_TEXT];
		char run_dir[JOB_PATH]; /* the run folder is run_dir/name */
		int64_t steps;          /* optimizer steps in the whole run */
		uint64_t seed;
		enum job_device device;
		enum job_deterministic deterministic;
		bool graphs; /* cuda: record passes once and replay them */
		/* a program that is run instead of the built-in training, as a line of words
		 * (base/words.h); "": none */
		char program[JOB_PROGRAM];
	} job;
	struct {
		enum job_visible visible;
		enum job_show show;
		char stop_signal[JOB_SHORT];
		double stop_grace; /* seconds from the request to stop to SIGKILL */
		double exit_timeout; /* seconds that ranks may be idle after one has exited with 0; 0: any */
		double silence; /* seconds without output of any rank that count as a hang; 0: any */
	} program;
	struct {
		enum job_family family;
		int64_t layers, hidden, heads, kv_heads /* 0: heads */,
			head_dim /* 0: hidden/heads */,
			ffn /* 0: 4*hidden with GELU, 8/3*hidden rounded up to 256 with SwiGLU */,
			vocab, seq;
		enum job_tie tie_head;
		double norm_eps, rope_theta, init_std;
		enum job_rope_scaling rope_scaling;
		double rope_factor, rope_low, rope_high; /* llama3's frequency factors */
		int64_t rope_original;                   /* llama3's original context */
		double dropout, attn_dropout;
		int64_t experts, experts_per_token; /* mixtral */
		enum job_router router;
		double aux_loss, z_loss; /* weights of the router's losses */
		double capacity; /* an expert's most tokens over its fair share; 0: dropless */
	} model;
	struct {
		int64_t tp, cp, pp, dp; /* dp 0: as many as the devices allow */
		int64_t ep;             /* expert parallel degree; divides dp */
		/* virtual stages per rank; 0: the least that the schedule takes */
		int64_t chunks;
		char stages[JOB_TEXT]; /* layers of each stage, "3,5,4"; "": balanced by cost */
		enum job_schedule schedule;
		bool sp;      /* sequence parallel over tp */
		bool overlap; /* overlap transfers with the matrix products */
		int64_t zero; /* 0 to 3 */
		enum job_zero_shard zero_shard;
		enum job_sync sync;
		/* server: the most steps that a replica may be ahead of the slowest */
		int64_t staleness;
		/* keys that a search may decide are open if they are not given */
		bool automatic;
	} parallel;
	struct {
		enum job_recompute mode;
		int64_t every; /* recompute every n-th layer */
	} recompute;
	struct {
		bool activations, optimizer;
	} offload;
	struct {
		enum job_dtype dtype; /* of weights and activations in the passes */
		enum job_fp8 fp8;     /* in the matrix products of linear layers */
		enum job_fp8_scaling fp8_scaling;
		double loss_scale;         /* fp16; 0: dynamic */
		int64_t loss_scale_window; /* steps without overflow after which a dynamic scale doubles */
		bool stochastic_rounding;
	} precision;
	struct {
		int64_t micro;  /* sequences in a micro-batch */
		int64_t logits; /* MiB of a chunk of logits, on a device (activations.h) */
		int64_t global; /* sequences in an optimizer step */
	} batch;
	struct {
		enum job_optimizer kind;
		double momentum;
		double lr, min_lr;
		int64_t warmup; /* steps */
		enum job_lr_schedule schedule;
		int64_t decay_steps; /* 0: job.steps */
		int64_t cooldown;    /* wsd: the last steps, in which the learning rate falls */
		double beta1, beta2, eps, weight_decay, clip /* 0: no clipping */;
	} optimizer;
	struct {
		/* prefix of .bin and .idx, an llm.c .bin, or a blend: "0.7 A 0.3 B" */
		char path[JOB_PATH];
		double validation;    /* share of the samples that is held out, 0 to 0.5 */
		int64_t eval_every;   /* steps; 0: never */
		int64_t eval_batches; /* global batches that an evaluation reads */
		enum job_documents documents;
		int64_t prefetch; /* steps whose tokens are read ahead */
		/* positions in the order of the samples that are not read (base/ranges.h) */
		char skip[2 * JOB_TEXT];
	} data;
	struct {
		char dir[JOB_PATH]; /* "": ckpt in the run folder */
		int64_t every;      /* steps; 0: only at a stop and at the end */
		int64_t keep;       /* how many to keep; 0: all */
		int64_t keep_every; /* multiples of it are kept for good; 0: none */
		/* a folder that each node has for itself, with %N; "": none */
		char local[JOB_TEXT];
		int64_t local_every, local_keep;
		int64_t memory_every;    /* steps; 0: never; -1: as often as it is cheap */
		int64_t copies;          /* in the memory of other nodes: 0 or 1 */
		char remote[JOB_TEXT];   /* s3://bucket/prefix or a folder; "": none */
		int64_t remote_every;    /* 0: every checkpoint of dir */
		int64_t remote_keep;     /* 0: all */
		double remote_bandwidth; /* bytes/s; 0: no limit */
		double remote_wait;      /* s */
		/* for predictions: GB/s of the storage, for all nodes together and for one node */
		double bandwidth, node_bandwidth;
		char resume[JOB_PATH]; /* auto, none, or the folder of a checkpoint */
	} checkpoint;
	struct {
		enum job_launcher launcher;
		enum job_pmix pmix; /* whose PMIx server serves agents under Slurm */
		/* local: the most agents on this host; 0: as many as the degrees need */
		int64_t devices;
		/* threads per agent, or a list for each rank, "2,1" (speeds.h); 0: cores /
		 * agents, at least 1 */
		char threads[JOB_TEXT];
		/* relative speed of each rank's device, "2,1,1,1" or "2,1*3"
		 * (speeds.h); "": as the threads */
		char speeds[JOB_TEXT];
		enum job_bind bind;
		enum job_preflight preflight; /* checks of the nodes before the first start */
		/* for plan: auto, local, or a preset such as dgx-h100:128 */
		char cluster[JOB_TEXT];
		char calibration[JOB_PATH]; /* auto, none, or a file (calibration.h) */
	} launch;
	struct {
		struct job_range nodes; /* that work */
		int64_t gpus_per_node, cpus_per_task;
		int64_t spares; /* nodes in addition, which stay unused until one is lost */
		char time[JOB_SHORT], partition[JOB_TEXT], account[JOB_TEXT], qos[JOB_TEXT],
			constraint[JOB_TEXT], reservation[JOB_TEXT];
		char mem[JOB_SHORT], exclusive[JOB_SHORT], switches[JOB_SHORT];
		char gres[JOB_TEXT / 2], licenses[JOB_TEXT / 2], mail_user[JOB_TEXT / 2],
			mail_type[JOB_TEXT / 2];
		char nodelist[JOB_TEXT], exclude[JOB_TEXT], dependency[JOB_TEXT], comment[JOB_TEXT];
		char options[2 * JOB_TEXT]; /* further options of sbatch (sbatch.h) */
		/* Slurm's REST interface, to submit by (launcher/slurm/rest/rest.h); "": by its
		 * commands */
		char rest[JOB_TEXT], rest_token_file[JOB_TEXT], rest_ca_file[JOB_TEXT];
		/* seconds before the time limit at which to checkpoint and stop */
		bool chain;
		bool progress_comment;
		int64_t signal_before;
		bool requeue;
	} slurm;
	struct {
		int64_t max_restarts;
		/* seconds before the second consecutive restart without progress; it doubles up to
		 * 60 */
		double backoff;
		/* consecutive restarts without a further committed step before giving up */
		int64_t max_futile;
		char retry_on[JOB_TEXT]; /* ends of a program's task (retry_on.h) */
		bool warm;               /* agents outlive a generation */
		/* seconds for an agent to leave a lost generation */
		double regroup_timeout;
		double hang_timeout; /* seconds without progress of any rank; 0: never */
		double hang_floor;   /* the least that a learned limit may be, in seconds */
		/* seconds: without a message of a rank; until all ranks have connected; for killed
		 * processes to end; for a connection to identify itself */
		double silent_timeout, start_timeout, drain_timeout, handshake_timeout;
		double stacks_timeout; /* seconds to examine ranks that hang; 0: they are not */
		enum job_shrink shrink;
		enum job_regrow regrow;
		int64_t exclude_after; /* faults of one node; 0: never */
		/* seconds to wait for lost nodes or for a service of the site */
		double patience;
		/* for predictions: hours between failures of one node; 0: no node fails */
		double node_mtbf;
		/* for predictions: seconds from a failure until agents run again and begin to load
		 * a checkpoint */
		double respawn;
	} restart;
	struct {
		char backend[JOB_SHORT]; /* libcomm's: auto, shm, tcp */
		/* "": the address of the host's name; loopback if all ranks are on this host */
		char interface[JOB_TEXT / 2];
		char integrity[JOB_SHORT]; /* libcomm's: none, checksum, seal */
		int64_t sockets;           /* connections between two ranks; 0: libcomm's default */
		double timeout;            /* seconds a collective may wait */
	} network;
	struct {
		double slow_factor; /* 0: ranks are not compared */
		double slow_window; /* seconds */
		enum job_slow_policy slow_policy;
		double pause;          /* seconds; 0: not reported */
		int64_t compare_every; /* steps; 0: at checkpoints only; -1: never */
		enum job_bad_numbers bad_numbers;
		double spike_z;       /* 0: only what is not finite is bad */
		int64_t spike_window; /* good steps that a step is compared with */
		int64_t max_skips;    /* rollbacks of the run */
		int64_t skip_before;  /* batches before the bad one that are skipped, too */
		double preflight_factor;
		double preflight_timeout; /* seconds */
		int suspects;             /* enum job_suspects */
		char nodes_dir[JOB_TEXT];
	} health;
	struct {
		double z;         /* of loss and gradient norm; 0: not judged */
		double data;      /* share of a step; 0: not judged */
		double slow;      /* times as long as its peers; 0: not judged */
		double memory;    /* share of the memory; 0: not judged */
		double predicted; /* times the predicted step; 0: not judged */
	} warn;
	struct {
		char on[JOB_TEXT / 2]; /* a list of JOB_NOTICES (notify.h) */
		char url[2 * JOB_TEXT], url_file[JOB_TEXT];
		enum job_preset preset;
		char secret_file[JOB_TEXT], ca_file[JOB_TEXT];
		char command[2 * JOB_TEXT]; /* words separated by blanks (notify.h) */
	} notify;
	struct {
		int64_t every; /* steps between progress lines */
		char level[JOB_SHORT];
		double keep; /* MiB of each rank; 0: all */
		/* a pattern (node_path.h), "auto", or "none": all logs are in the run folder */
		char local[JOB_TEXT];
	} log;
	struct {
		double keep; /* GiB */
		bool tensorboard;
		char listen[JOB_TEXT / 2]; /* "": nowhere */
		char token_file[JOB_TEXT]; /* "": the variable MUSTER_METRICS_TOKEN */
		char textfile[JOB_TEXT];   /* "": none */
		bool ranks;                /* series of each rank */
	} metrics;
	struct {
		struct job_range steps; /* whose phases and operations each rank records */
	} trace;
	struct {
		enum job_engine engine;
		enum job_loss loss;
	} plan;
	/* enum job_open: keys given as `auto`. They have their defaults until a search decides them
	 * (search_resolve). */
	uint32_t open;
};

/* Reads the file (NULL: only defaults), then the `section.key=value` words. Words override the
 * file, and later words override earlier ones. Makes all checks that need no cluster. The keys that
 * a search may still decide are checked when it has decided them. A job without a name gets the
 * name of the file without folder and ".ini". */
int job_load(const char *path, const char *const *words, int n_words, struct job *out,
	     struct err *e);
/* Reads a job from words alone, as job_load does without a file. */
int job_words(const char *const *words, int n, struct job *out, struct err *e);
/* Reads a job from text, for the agent and the fuzzer. name: the name of the file in errors. */
int job_parse(const char *text, const char *name, struct job *out, struct err *e);
/* The words for job_load that open every key a search may decide, "parallel.tp=auto" and so on.
 * Returns how many there are, at most JOB_AUTO_MAX. */
enum { JOB_AUTO_MAX = 16 };
int job_auto_words(const char *words[JOB_AUTO_MAX]);
/* Whether the job runs a program of the user instead of the built-in training. */
bool job_has_program(const struct job *job);
/* Optimizer steps in the whole run; 0: unknown, because a program does not say. */
int64_t job_steps(const struct job *job);
/* Checks what a run needs and a plan does not: data.path. name: as in job_parse. */
int job_check_run(const struct job *job, const char *name, struct err *e);
/* Writes the resolved job as INI, with every default. Keys that have no effect because the job runs a
 * program, or because it runs none, are left out. */
void job_write(const struct job *job, struct buf *out);
/* The value of an enum key as the file has it. offset: offsetof(struct job, section.key). */
const char *job_word(const struct job *job, size_t offset);
/* The word of an enum key for a given value. */
const char *job_enum_word(size_t offset, int value);
/* Whether checkpoints under this path are in an object store, "s3://bucket/prefix", in place of a
 * folder. */
bool job_path_is_address(const char *path);
/* The table as a section of a man page: keys, types, ranges, defaults, meaning. */
void job_help(struct buf *out);

#endif
