/*
 * retry — whether and when a request to an object store is sent again.
 *
 * What may pass is retried: no connection, a connection that broke, a time-out, and the answers
 * 500, 502, 503 (SlowDown), 504, 408, 429, and 409 for a conflict of two conditional requests. The
 * pause is exponential with full jitter: a random number between 0 and a bound that doubles with
 * each attempt, so that thousands of ranks that were refused together do not return together. A
 * store that names the pause (Retry-After) is obeyed.
 */
#ifndef MUSTER_BASE_S3_RETRY_H
#define MUSTER_BASE_S3_RETRY_H

#include "base/err.h"

#include <stdbool.h>

struct s3_patience {
	int attempts;          /* at most, the first one included */
	double total_s;        /* at most, from the first attempt to the last answer */
	double base_s, most_s; /* bound of the first pause, and of any */
};

/* Whether a request that failed on the way may succeed later. */
bool s3_may_pass(enum err_code code);
/* The same for an answer: its HTTP status, and the code in its body ("": none). */
bool s3_answer_may_pass(int status, const char *code);

/* Seconds to wait before the attempt after `attempt` (from 1). chance: a random number in [0, 1).
 * asked: Retry-After in seconds; 0: none. Negative: no more attempts. spent: seconds so far. */
double s3_pause(const struct s3_patience *p, int attempt, double spent, double asked,
		double chance);

/* The value of Retry-After, a number of seconds or a date, at the time `now` of clock_wall_s(). 0:
 * none, or not valid. */
double s3_retry_after(const char *value, double now);

#endif
