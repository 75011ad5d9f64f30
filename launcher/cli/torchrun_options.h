/*
 * torchrun_options — the options of torchrun, `python -m torch.distributed.run` and
 * `torch.distributed.launch`, and what muster does for each.
 *
 * To add an option: its row in TORCHRUN_OPTIONS, in the order of torchrun's own help, and its row in
 * doc/guide/from-torchrun.md. If neither a key nor a word of the row is enough, like_torchrun.c handles
 * the option by its name.
 */
#ifndef MUSTER_LAUNCHER_CLI_TORCHRUN_OPTIONS_H
#define MUSTER_LAUNCHER_CLI_TORCHRUN_OPTIONS_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>

/* What becomes of an option. */
enum torchrun_use {
	TORCHRUN_COUNT,   /* its value, a whole number, is that of a key */
	TORCHRUN_WORD,    /* a key gets a fixed value */
	TORCHRUN_PROGRAM, /* it changes the program, or keys by a rule of its own (like_torchrun.c) */
	TORCHRUN_IGNORED, /* nothing; `text` says why */
};

/* clang-format off */

/* id, name, short name or NULL, whether it takes a value, use, key or NULL, and the key's fixed value or
 * what becomes of the option */
#define TORCHRUN_OPTIONS(X) \
	X(NNODES, "--nnodes", NULL, true, TORCHRUN_PROGRAM, "slurm.nodes", "") \
	X(NPROC, "--nproc-per-node", NULL, true, TORCHRUN_PROGRAM, "slurm.gpus_per_node", "a rank runs on each device that is there") \
	X(RDZV_BACKEND, "--rdzv-backend", NULL, true, TORCHRUN_IGNORED, NULL, "muster connects the ranks") \
	X(RDZV_ENDPOINT, "--rdzv-endpoint", NULL, true, TORCHRUN_IGNORED, NULL, "muster connects the ranks, on ports that are free") \
	X(RDZV_ID, "--rdzv-id", NULL, true, TORCHRUN_IGNORED, NULL, "the name of the run takes its place") \
	X(RDZV_CONF, "--rdzv-conf", NULL, true, TORCHRUN_IGNORED, NULL, "muster connects the ranks; restart.start_timeout limits the start") \
	X(STANDALONE, "--standalone", NULL, false, TORCHRUN_IGNORED, NULL, "without a Slurm allocation muster runs on this host") \
	X(MAX_RESTARTS, "--max-restarts", NULL, true, TORCHRUN_COUNT, "restart.max_restarts", "") \
	X(MONITOR_INTERVAL, "--monitor-interval", NULL, true, TORCHRUN_IGNORED, NULL, "muster learns of an exit at once") \
	X(START_METHOD, "--start-method", NULL, true, TORCHRUN_IGNORED, NULL, "each task is a program of its own") \
	X(EVENT_LOG_HANDLER, "--event-log-handler", NULL, true, TORCHRUN_IGNORED, NULL, "events are in events.jsonl of the run folder") \
	X(ROLE, "--role", NULL, true, TORCHRUN_IGNORED, NULL, "ROLE_NAME is always default") \
	X(MODULE, "--module", "-m", false, TORCHRUN_PROGRAM, NULL, "job.program runs the module") \
	X(NO_PYTHON, "--no-python", NULL, false, TORCHRUN_PROGRAM, NULL, "job.program begins with the program") \
	X(RUN_PATH, "--run-path", NULL, false, TORCHRUN_PROGRAM, NULL, "job.program runs the script with python") \
	X(LOG_DIR, "--log-dir", NULL, true, TORCHRUN_IGNORED, NULL, "each rank's output is in logs/ of the run folder; job.run_dir moves it") \
	X(REDIRECTS, "--redirects", "-r", true, TORCHRUN_PROGRAM, "program.show", "the log of each rank has both of its streams; program.show decides what the terminal shows") \
	X(TEE, "--tee", "-t", true, TORCHRUN_PROGRAM, "program.show", "the log of each rank has both of its streams; program.show decides what the terminal shows") \
	X(LOG_PREFIX, "--log-line-prefix-template", NULL, true, TORCHRUN_IGNORED, NULL, "muster logs names node and rank before each line") \
	X(LOCAL_RANKS_FILTER, "--local-ranks-filter", NULL, true, TORCHRUN_IGNORED, NULL, "muster logs RUN --rank selects ranks; program.show decides what the terminal shows") \
	X(STDOUT_FILTERS, "--duplicate-stdout-filters", NULL, true, TORCHRUN_IGNORED, NULL, "muster logs RUN --grep selects lines") \
	X(STDERR_FILTERS, "--duplicate-stderr-filters", NULL, true, TORCHRUN_IGNORED, NULL, "muster logs RUN --grep selects lines") \
	X(NODE_RANK, "--node-rank", NULL, true, TORCHRUN_IGNORED, NULL, "muster numbers the nodes; start it once, not on each node") \
	X(MASTER_ADDR, "--master-addr", NULL, true, TORCHRUN_IGNORED, NULL, "MASTER_ADDR is the node of rank 0") \
	X(MASTER_PORT, "--master-port", NULL, true, TORCHRUN_IGNORED, NULL, "MASTER_PORT is a port that is free") \
	X(LOCAL_ADDR, "--local-addr", NULL, true, TORCHRUN_IGNORED, NULL, "network.interface selects the network") \
	X(LOGS_SPECS, "--logs-specs", NULL, true, TORCHRUN_IGNORED, NULL, "each rank's output is in logs/ of the run folder") \
	X(NUMA_BINDING, "--numa-binding", NULL, true, TORCHRUN_IGNORED, NULL, "launch.bind places tasks on the cores near their devices") \
	X(SIGNALS, "--signals-to-handle", NULL, true, TORCHRUN_IGNORED, NULL, "program.stop_signal is the signal that tasks get") \
	X(SHUTDOWN_TIMEOUT, "--shutdown-timeout", NULL, true, TORCHRUN_COUNT, "program.stop_grace", "") \
	X(VIRTUAL_LOCAL_RANK, "--virtual-local-rank", NULL, false, TORCHRUN_WORD, "program.visible", "own") \
	X(USE_ENV, "--use-env", NULL, false, TORCHRUN_PROGRAM, NULL, "the script reads LOCAL_RANK")

/* clang-format on */

enum torchrun_id {
#define TORCHRUN_ID(id, ...) TORCHRUN_##id,
	TORCHRUN_OPTIONS(TORCHRUN_ID)
#undef TORCHRUN_ID
		TORCHRUN_N
};

struct torchrun_option {
	const char *name, *brief;
	bool takes_value;
	enum torchrun_use use;
	const char *key, *text;
};

extern const struct torchrun_option command_torchrun_options[TORCHRUN_N];

/* A command line of torchrun. All texts are those of its argv. */
struct torchrun_line {
	const char *value
		[TORCHRUN_N]; /* of each option that is given, "" without one; NULL: not given */
	const char *python;   /* the interpreter that the line names, or NULL */
	const char *folder;   /* "/venv/bin/" of /venv/bin/torchrun; folder_n bytes */
	int folder_n;
	bool launch;         /* torch.distributed.launch: the script gets --local-rank */
	char *const *script; /* the script, module or program, and its arguments; NULL at the end */
};

/* Reads the words of a command line up to NULL. It may begin with torchrun, or with
 * `python -m torch.distributed.run` or `….launch`, or with the first option. Names may have '_' for '-',
 * and may be cut while they are unique, as argparse has it. */
int command_torchrun_read(char *const *argv, struct torchrun_line *out, struct err *e);

#endif
