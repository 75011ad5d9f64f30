/*
 * Any bytes as a job file and, behind a NUL, as a word of the command line: refused in one line that
 * begins with the place, or a job that reads back the same and whose model can be put on paper.
 */
#include "base/buf.h"
#include "plan/job.h"
#include "plan/layout.h"
#include "plan/model.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void refused(const struct err *e, const char *place)
{
	if (e->code != ERR_USAGE || strchr(e->text, '\n') || strncmp(e->text, place, strlen(place)))
		abort();
}

static void reads_back(const struct job *job)
{
	struct buf text = BUF_INIT;
	struct job back;
	struct err e = ERR_INIT;
	job_write(job, &text);
	if (job_parse(buf_str(&text), "back.ini", &back, &e) || memcmp(job, &back, sizeof back))
		abort();
	buf_fini(&text);
}

static void is_on_paper(const struct job *job)
{
	struct model_shape m;
	struct catalogue c;
	struct stage stages[16];
	int pp = (int)job->parallel.pp, tp = (int)job->parallel.tp;
	model_shape(job, &m);
	if (model_params(&m) <= 0 || !(model_flops_token(&m) > 0))
		abort();
	if (m.layers > 64 || pp > 16)
		return;
	if (layout_stages(&m, pp, stages, NULL) || catalogue_build(&m, tp, tp - 1, &stages[pp - 1], &c, NULL))
		abort();
	catalogue_free(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct job job;
	struct err e = ERR_INIT;
	char *text = calloc(1, size + 1);
	if (!text)
		return 0;
	memcpy(text, data, size);
	size_t n = strlen(text);
	const char *word = n < size ? text + n + 1 : NULL;
	if (job_parse(text, "fuzz.ini", &job, &e)) {
		refused(&e, "fuzz.ini:");
	} else {
		reads_back(&job);
		is_on_paper(&job);
	}
	if (word && job_load(NULL, &word, 1, &job, &e))
		refused(&e, "command line: ");
	else if (word)
		reads_back(&job);
	free(text);
	return 0;
}
