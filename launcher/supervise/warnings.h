/*
 * warnings — the rules by which a run warns its user, and which warnings hold now.
 *
 * A warning is reported when it begins and when it ends, and not in between. Most rules judge each
 * step: such a warning begins once so many of the last steps were out of the rule's limit, and ends
 * once no more than a few of them are. In between nothing changes, so that a value near the limit does
 * not begin and end it again and again. A step without the rule's value (NaN) does not count. The
 * other rules are judged elsewhere, and say whether they hold.
 *
 *     loss-spike      the loss is above its recent range (base/recent.h)
 *     gradient-norm   so is the norm's logarithm, because norms vary by factors
 *     data            waiting for samples takes a large share of the step
 *     prediction      a step takes a multiple of the prediction
 *     memory          a rank has nearly used the memory that it has
 *     lagging-rank    a rank takes longer than its peers, or stragglers.h names it
 *     slow-checkpoint slow_checkpoints.h says so
 *
 * The recent range is that of the last WARNING_WINDOW steps which were not out of it themselves; half
 * as many must be known. It begins anew when the run goes back by more than WARNING_BACK steps, because
 * the loss there was another one; not when another `muster run` continues the run; and after WARNING_WINDOW steps in a row out of it: they are the new
 * level, and the warning ends.
 *
 * This is pure judgement; warn.h feeds it and reports what changes. To add a rule: add a row, and
 * judge it in warnings.c, or hold it from warn.c.
 *
 * Only the files of this room include it.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_WARNINGS_H
#define MUSTER_LAUNCHER_SUPERVISE_WARNINGS_H

#include "base/recent.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum {
	WARNING_WINDOW = 128,
	WARNING_BACK = 32,
	WARNING_TEXT = 400,
};

/* clang-format off */

/* ENUM, id, steps that count (0: judged elsewhere; at most 64), of these out of the limit when it
 * begins, and at most when it ends, whether it is about slowness, what is printed at its end, remedy */
#define WARNING_RULES(X) \
	X(LOSS,       "loss-spike",      20,  2,  0, false, "the loss is in its recent range again", "if the loss does not come back by itself, continue from a checkpoint before this step with a lower optimizer.lr; health.bad_numbers = skip leaves out the samples of such steps by itself") \
	X(NORM,       "gradient-norm",   20,  3,  0, false, "the gradient norm is in its recent range again", "clipping limits what such steps do; if the loss rises too, lower optimizer.lr or optimizer.clip, or raise optimizer.warmup") \
	X(DATA,       "data",            20, 18,  5, false, "training hardly waits for samples any more", "raise data.prefetch, or put the data on a faster disk or file system") \
	X(PREDICTION, "prediction",      50, 45, 15, false, "a step takes about as long as predicted again", "the parts of the step in metrics.jsonl show what takes longer; muster doctor checks the nodes, and muster bench calibrate measures them for better predictions") \
	X(MEMORY,     "memory",           0,  0,  0, false, "the memory of the ranks is not near its limit any more", "a little more and the run ends without memory: lower batch.micro, or use recompute.mode, parallel.zero or [offload]; muster plan shows what each saves") \
	X(LAGGING,    "lagging-rank",     0,  0,  0, true,  "all ranks are about as fast as their peers again", "look at the node's clocks, heat and other processes; with health.slow_policy = exclude the run leaves the node of a rank that is slower than health.slow_factor") \
	X(SLOW_CKPT,  "slow-checkpoint",  0,  0,  0, true,  "checkpoints do not take too long any more", "raise checkpoint.every, or use a faster folder: checkpoint.dir, or checkpoint.local on the nodes' own disks")

enum warning_id {
#define WARNING_ENUM(ENUM, id, steps, begins, ends, slow, over, remedy) WARNING_##ENUM,
	WARNING_RULES(WARNING_ENUM)
#undef WARNING_ENUM
	WARNING_COUNT
};

/* clang-format on */

struct warning_rule {
	const char *id;
	int steps, begins, ends;
	bool slow;
	const char *over, *remedy;
};

/* The keys of [warn]; 0: the rule is off. */
struct warning_limits {
	double z, data, predicted;
	int64_t warmup; /* steps whose loss and norm are not judged */
};

/* What a step showed. NaN: unknown. */
struct warning_sample {
	int64_t step;
	double loss, norm;
	double data;        /* share of the step … */
	int data_rank;      /* … of this rank */
	double step_s;      /* without checkpoints and waits for a core … */
	double predicted_s; /* … and as it was predicted */
};

struct warning {
	bool holds;
	double since; /* seconds since 1970 */
	char text[WARNING_TEXT];
	uint64_t out; /* a bit for each of the last steps, the last one lowest: out of the limit */
};

/* The recent range of a number. */
struct warning_range {
	struct recent recent;
	int out; /* steps in a row that were out of it */
};

struct warnings {
	struct warning_limits limits;
	struct warning list[WARNING_COUNT];
	struct warning_range loss, norm;
	int64_t last_step;
};

/* What has changed: bits 1 << enum warning_id. list[…].text is what to report. */
struct warning_news {
	unsigned begun, ended;
};

const struct warning_rule *supervise_warning_rule(enum warning_id id);

void supervise_warnings_init(struct warnings *w, const struct warning_limits *limits);
/* time: seconds since 1970. */
struct warning_news supervise_warnings_step(struct warnings *w, const struct warning_sample *x,
					    double time);
/* A step of an earlier `muster run`, before the first one of this: it only makes the recent ranges known.
 * Steps come in their order. */
void supervise_warnings_prime(struct warnings *w, const struct warning_sample *x);
/* A rule that is judged elsewhere holds, or does not. `text` counts if this is news; NULL, if it does
 * not hold: the rule's words for its end. */
struct warning_news supervise_warnings_hold(struct warnings *w, enum warning_id id, bool holds,
					    const char *text, double time);

/* The warnings that hold: a list of {"id", "since", "text", "remedy"}. A new reference; NULL: no
 * memory. */
json_t *supervise_warnings_json(const struct warnings *w);

#endif
