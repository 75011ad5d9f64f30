#include "plan/search/leaner.h"

#include "base/human.h"
#include "plan/cost/engine.h"
#include "plan/search/fit.h"
#include "plan/spec/speeds.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const enum job_engine programs[] = { ENGINE_MEGATRON_CORE, ENGINE_FSDP_COMPILED };
enum { PROGRAMS = sizeof programs / sizeof *programs };

/* A part is named if it makes up this share of what is saved. */
#define NAMED 0.1

/* The plan's memory with another program. Returns whether it fits; *most: the largest rank's
 * bytes. */
static bool fits_with(struct job *job, enum job_engine program, const struct cluster *c,
		      struct plan *p, double *most)
{
	bool fits = true;
	job->plan.engine = program;
	plan_memory(job, c, p);
	*most = 0;
	for (int i = 0; i < p->world; i++) {
		const struct plan_rank *r = &p->ranks[i];
		double limit = search_fit_of_rank(c, p, r);
		*most = fmax(*most, r->total);
		fits &= limit <= 0 || r->total <= limit;
	}
	return fits;
}

static void print_less(const struct plan_rank *ours, const struct plan_rank *theirs,
		       struct buf *out)
{
	const char *before = " (";
	double saved = 0;
	for (int i = 0; i < FIT_PARTS; i++)
		saved += fmax(0, search_fit_part(ours, i) - search_fit_part(theirs, i));
	for (int i = 0; i < FIT_PARTS; i++) {
		double less = search_fit_part(ours, i) - search_fit_part(theirs, i);
		char text[HUMAN];
		if (less < NAMED * saved)
			continue;
		buf_printf(out, "%s%s %s less", before, search_fit_part_name(i),
			   human_bytes(less, text));
		before = ", ";
	}
	buf_puts(out, *before == ',' ? ")" : "");
}

/* mine, p: copies, which this changes. at: the rank that does not fit, as muster has it. */
static void print_leanest(struct job *mine, const struct cluster *c, struct plan *p, int at,
			  struct buf *out)
{
	struct plan_rank ours = p->ranks[at], theirs = ours;
	double least = INFINITY, most;
	char text[HUMAN];
	const char *name = NULL;
	for (int i = 0; i < PROGRAMS; i++)
		if (fits_with(mine, programs[i], c, p, &most) && most < least) {
			least = most;
			theirs = p->ranks[at];
			name = cost_engines[programs[i]]->name;
		}
	if (!name)
		return;
	buf_printf(out, "; %s would fit with %s", name, human_bytes(least, text));
	print_less(&ours, &theirs, out);
}

void search_leaner_print(const struct job *job, const struct cluster *c, const struct plan *p,
			 const struct plan_rank *worst, struct buf *out)
{
	/* Others do not share out their work by speeds, and have no parameter server. */
	if (job->plan.engine != ENGINE_MUSTER || job->parallel.sync == SYNC_SERVER ||
	    speeds_devices(job) || plan_on_cpu(topo_cluster_kind(c, worst->node)))
		return;
	struct job *mine = malloc(sizeof *mine); /* too large for a small stack */
	struct plan other = *p;
	other.ranks = malloc((size_t)p->world * sizeof *other.ranks);
	if (mine && other.ranks) {
		*mine = *job;
		memcpy(other.ranks, p->ranks, (size_t)p->world * sizeof *other.ranks);
		print_leanest(mine, c, &other, (int)(worst - p->ranks), out);
	}
	free(other.ranks);
	free(mine);
}
