/*
 * bad_numbers — judges whether the numbers of a step are bad: a loss or a gradient norm that is not
 * finite, or a spike. It is pure arithmetic.
 *
 * A spike is a value far above those of the last good steps: z = (x - median) / deviation is above
 * `z`. The deviation is 1.4826 times the median of the absolute deviations (MAD) from the median,
 * which for a normal distribution is its standard deviation, and which a few outliers do not
 * change. It has a least value, so that a series that hardly varies gives no alarm: 2 % of the
 * median for the loss; for the norm, whose logarithm is judged because norms vary by factors, 0.25.
 * So with z = 10 a spike is a loss of at least 1.2 times the median, or a norm of at least 12
 * times: clipping takes care of less. A value that one of the last good steps has reached is no
 * spike. Nothing is a spike before half of the window is known. All of this is two limits, which
 * change with each good step.
 *
 * Every rank has the same loss and norm, so that each comes to the same decision. A generation that
 * continues from a checkpoint begins with the window that the run had there: the steps up to a
 * checkpoint are in metrics.jsonl before it is committed.
 */
#ifndef MUSTER_AGENT_ENGINE_TRAIN_BAD_NUMBERS_H
#define MUSTER_AGENT_ENGINE_TRAIN_BAD_NUMBERS_H

#include "base/err.h"
#include "base/recent.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BAD_WINDOW_MAX = RECENT_MAX };

struct bad_numbers {
	double z;                 /* 0: there are no spikes */
	int window;               /* good steps, 2 to BAD_WINDOW_MAX */
	struct recent loss, norm; /* of good steps; of the norm, the logarithms */
	/* A larger loss or norm is a spike; INFINITY: none is. A device that judges steps by itself
	 * compares with the same numbers (struct step_numbers, kernels/ops.h). */
	double loss_limit, norm_limit;
};

struct bad_number {
	const char *what; /* "loss" or "gradient norm" */
	double value;
	double usual; /* the median; NaN: the value is not finite */
	double z;     /* of a spike */
};

void train_bad_init(struct bad_numbers *b, double z, int64_t window);
/* Whether a step with these numbers is bad; *out is set then. */
bool train_bad_judge(const struct bad_numbers *b, double loss, double norm, struct bad_number *out);
/* Adds the numbers of a good step. */
void train_bad_note(struct bad_numbers *b, double loss, double norm);
/* Adds the good steps up to `last` in this end of a metrics.jsonl. Of a step that comes twice, the
 * later line counts. */
int train_bad_read(struct bad_numbers *b, const char *text, size_t len, int64_t last,
		   struct err *e);

#endif
