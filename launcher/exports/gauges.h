/*
 * gauges — the numbers of a run in the text formats of Prometheus and OpenMetrics.
 *
 * One table lists the numbers; the text, its HELP lines and doc/ are made from it. Names follow
 * Prometheus' rules: base units (seconds, bytes), the unit at the end of the name, and _total for
 * counters, which only grow while one `muster run` goes on. A number that is not known yet is
 * absent. Each one has the labels run and host.
 *
 * The two formats differ in little: OpenMetrics names a counter without _total in its HELP and TYPE
 * lines, and ends with "# EOF".
 */
#ifndef MUSTER_LAUNCHER_EXPORTS_GAUGES_H
#define MUSTER_LAUNCHER_EXPORTS_GAUGES_H

#include "base/buf.h"
#include "base/messages.h"
#include "launcher/exports/exports.h"

#include <stdbool.h>

/* clang-format off */

/* id, type, name after "muster_", help */
#define EXPORT_GAUGES(X) \
	X(STEP,            GAUGE,   "step",                         "Last finished step.") \
	X(PLANNED,         GAUGE,   "planned_steps",                "Steps of the whole run.") \
	X(STEPS,           COUNTER, "steps_total",                  "Steps that were trained, repeated ones included.") \
	X(SKIPPED,         COUNTER, "skipped_steps_total",          "Steps that updated nothing, because the gradients overflowed in fp16.") \
	X(SAMPLES,         GAUGE,   "samples",                      "Samples consumed since the run began.") \
	X(TOKENS,          COUNTER, "tokens_total",                 "Tokens that were trained on, repeated ones included.") \
	X(LOSS,            GAUGE,   "loss",                         "Training loss of the last step.") \
	X(CROSS_ENTROPY,   GAUGE,   "cross_entropy_loss",           "Part of the training loss that is cross-entropy, with experts.") \
	X(BALANCE_LOSS,    GAUGE,   "balance_loss",                 "Part of the training loss that is load balancing of experts.") \
	X(Z_LOSS,          GAUGE,   "z_loss",                       "Part of the training loss that is the z-loss of the router.") \
	X(EVAL_LOSS,       GAUGE,   "eval_loss",                    "Mean loss of the last evaluation.") \
	X(EVAL_STEP,       GAUGE,   "eval_step",                    "Step of the last evaluation.") \
	X(GRAD_NORM,       GAUGE,   "grad_norm",                    "Norm of the gradients of the last step before clipping.") \
	X(LEARNING_RATE,   GAUGE,   "learning_rate",                "Learning rate of the last step.") \
	X(LOSS_SCALE,      GAUGE,   "loss_scale",                   "Scale of the gradients in fp16.") \
	X(STEP_SECONDS,    GAUGE,   "step_seconds",                 "Duration of the last step.") \
	X(PREDICTED,       GAUGE,   "predicted_step_seconds",       "Duration of a step by the plan.") \
	X(LAST_STEP,       GAUGE,   "last_step_timestamp_seconds",  "When the last step was finished.") \
	X(PEAK,            GAUGE,   "peak_memory_bytes",            "Peak device memory of the rank that reports the loss.") \
	X(RANKS,           GAUGE,   "ranks",                        "Ranks of the current generation.") \
	X(NODES,           GAUGE,   "nodes",                        "Nodes of the current generation.") \
	X(GENERATION,      GAUGE,   "generation",                   "Number of the current generation.") \
	X(RESUMED,         GAUGE,   "resumed_step",                 "Step that the current generation continued from.") \
	X(RESTARTS,        COUNTER, "restarts_total",               "Restarts after losses.") \
	X(CHECKPOINTS,     COUNTER, "checkpoints_total",            "Checkpoints that were committed.") \
	X(CKPT_STEP,       GAUGE,   "checkpoint_step",              "Step of the last checkpoint.") \
	X(CKPT_BYTES,      GAUGE,   "checkpoint_bytes",             "Size of the last checkpoint.") \
	X(CKPT_SECONDS,    GAUGE,   "checkpoint_seconds",           "Time from the snapshot of the last checkpoint to its commit.") \
	X(CKPT_STALL,      GAUGE,   "checkpoint_stall_seconds",     "Time that training was held up by the last checkpoint.") \
	X(CKPT_TIME,       GAUGE,   "checkpoint_timestamp_seconds", "When the last checkpoint was committed.") \
	X(GOODPUT,         GAUGE,   "goodput_ratio",                "Share of the time of all ranks that was spent in steps that count.") \
	X(STARTED,         GAUGE,   "start_timestamp_seconds",      "When this muster run began.")

enum export_gauge {
#define EXPORT_GAUGE_ID(id, ...) GAUGE_##id,
	EXPORT_GAUGES(EXPORT_GAUGE_ID)
#undef EXPORT_GAUGE_ID
	GAUGE_COUNT
};

/* clang-format on */

struct export_gauges {
	char labels[900]; /* run="…",host="…" */
	char info[600];   /* further labels of muster_run_info */
	bool known[GAUGE_COUNT];
	double value[GAUGE_COUNT];
	/* seconds of all steps; the series exist with a first step */
	double parts[STEP_PART_COUNT];
	enum rundir_state_id state;
	const int64_t *time; /* [TIME_PART_COUNT] microseconds; NULL: unknown */
	/* As in struct exports_options; NULL: there are no series of ranks. */
	bool (*rank)(void *arg, int rank, struct export_rank *out);
	void *arg;
};

enum export_format { FORMAT_PROMETHEUS, FORMAT_OPEN_METRICS };

void exports_gauges_init(struct export_gauges *g, const char *run, const char *host);
void exports_gauge_set(struct export_gauges *g, enum export_gauge id, double value);
/* A number that is not known counts as 0. */
void exports_gauge_add(struct export_gauges *g, enum export_gauge id, double value);
/* The series of the ranks, which are the same in both formats; nothing if they are not asked for. */
void exports_gauges_ranks(const struct export_gauges *g, struct buf *out);
/* ranks: of exports_gauges_ranks(). */
void exports_gauges_text(const struct export_gauges *g, enum export_format format,
			 const struct buf *ranks, struct buf *out);
/* Appends name="value" to the labels of muster_run_info, with what the format escapes. */
void exports_gauges_info(struct export_gauges *g, const char *name, const char *value);

#endif
