#include "base/s3/retry.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

bool s3_may_pass(enum err_code code)
{
	return code == ERR_NET || code == ERR_TIMEOUT || code == ERR_NOTFOUND;
}

static const struct {
	int status;
	const char *code; /* NULL: any */
} passing[] = {
	{ 408, NULL },
	{ 429, NULL },
	{ 500, NULL },
	{ 502, NULL },
	{ 503, NULL },
	{ 504, NULL },
	{ 400, "RequestTimeout" },
	{ 409, "ConditionalRequestConflict" },
	{ 409, "OperationAborted" },
	{ 200, "InternalError" }, /* a CompleteMultipartUpload fails after its status line */
	{ 200, "SlowDown" },
	{ 200, "ServiceUnavailable" },
};

bool s3_answer_may_pass(int status, const char *code)
{
	for (size_t i = 0; i < sizeof passing / sizeof *passing; i++)
		if (passing[i].status == status &&
		    (!passing[i].code || !strcmp(passing[i].code, code)))
			return true;
	return false;
}

double s3_pause(const struct s3_patience *p, int attempt, double spent, double asked, double chance)
{
	double pause = chance * fmin(p->most_s, p->base_s * exp2(attempt - 1));
	pause = fmax(pause, asked);
	if (attempt >= p->attempts || spent + pause >= p->total_s)
		return -1;
	return pause;
}

double s3_retry_after(const char *value, double now)
{
	char *end;
	struct tm t = { 0 };
	double s = strtod(value, &end);
	if (end != value && !*end)
		return isfinite(s) && s > 0 ? s : 0;
	end = strptime(value, "%a, %d %b %Y %H:%M:%S GMT", &t);
	return end && !*end ? fmax(0, (double)timegm(&t) - now) : 0;
}
