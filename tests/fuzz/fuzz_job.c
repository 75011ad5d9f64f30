/*
 * Any bytes as a job file and, after a NUL, as a word of the command line. They are refused in one
 * line that begins with the place, or they give a job that is the same when it is written and read
 * again. The job can be planned unless that takes too long.
 */
#include "base/buf.h"
#include "plan/plan.h"
#include "plan/show/plan.h"

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

/* A machine that is large enough for the job. */
static struct cluster *machine(void)
{
	static struct node_kind kind = {
		.name = "box", .device = "cpu", .devices = 64, .cores = 64, .numa = 1
	};
	static struct cluster_node node = { .name = "n0" };
	static struct cluster c = {
		.name = "box:1", .kinds = &kind, .n_kinds = 1, .nodes = &node, .n_nodes = 1
	};
	return &c;
}

static void is_drawn(const struct job *job, const struct plan *p)
{
	struct buf text = BUF_INIT;
	json_t *j = show_plan_json(job, machine(), p);
	bool predicted = !job_has_program(job);
	if (!j || predicted != (p->time.total > 0))
		abort();
	for (int r = 0; r < p->world; r++)
		if (predicted != (p->ranks[r].total > 0))
			abort();
	show_plan_text(job, machine(), p, &text);
	buf_fini(&text);
	json_decref(j);
}

static void is_on_paper(const struct job *job)
{
	struct model_shape m;
	struct plan p;
	struct err e = ERR_INIT;
	shape_of_job(job, &m);
	if (shape_params(&m) <= 0 || !(shape_flops_token(&m) > 0))
		abort();
	struct layout l = layout_of(job, (int)(job->parallel.dp ? job->parallel.dp : 1));
	if (m.layers > 64 || m.experts > 64 || layout_n_stages(&l) > 64 || layout_world(&l) > 64 ||
	    job->batch.global / job->batch.micro > 256)
		return;
	if (!plan_build(job, machine(), &p, &e)) {
		is_drawn(job, &p);
		plan_free(&p);
	} else if (e.code != ERR_NOFIT && e.code != ERR_USAGE) {
		abort();
	}
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
