/*
 * search — measures how long a search takes on one core: over every configuration, by branch and
 * bound, and by branch and bound with the finalists built as whole plans.
 *
 * usage: search [bounded]
 *
 * Prints a line per case and mode: job, machine, mode, configurations evaluated, how many fit,
 * seconds on one core, the best step. "bounded" omits the exhaustive mode. The two modes must
 * agree; otherwise it exits with 1.
 */
#include "plan/search/search.h"
#include "plan/search/visit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double core_s(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static const struct {
	const char *file, *machine, *word;
	bool exhaustive;
} cases[] = {
	{ "templates/jobs/175b.ini", "dgx-h100:128", "batch.global=1536", true },
	{ "templates/jobs/mixtral-8x7b.ini", "dgx-h100:16", "batch.global=1024", false },
	{ "templates/jobs/175b.ini", "dgx-h100:2048", "batch.global=16384", false },
	{ "templates/jobs/175b.ini", "dgx-h100:12500", "batch.global=98304", false },
};

/* Only the best configuration: the bounds have to prove it. */
struct hunt {
	struct eval_leaf best;
	long looked, fit;
};

static bool worth(void *arg, double seconds)
{
	const struct hunt *h = arg;
	return seconds < h->best.time.total;
}

static void look(void *arg, const struct eval_leaf *leaf)
{
	struct hunt *h = arg;
	h->looked++;
	h->fit += leaf->fits;
	if (leaf->fits && leaf->time.total < h->best.time.total)
		h->best = *leaf;
}

static double walk(const struct space *s, bool bounded, const char *name)
{
	struct hunt h = { .best.time.total = INFINITY };
	struct err e = ERR_INIT;
	double start = core_s();
	struct eval *v = search_eval_open(s, &e);
	if (!v ||
	    search_visit_space(s, v,
			       &(struct space_visitor){ &h, bounded ? worth : NULL, look, bounded },
			       &e)) {
		fprintf(stderr, "search: %s\n", e.text);
		exit(1);
	}
	search_eval_close(v);
	printf("%-32s %-15s %-11s %9ld looked at %9ld fit %7.2f s  best %.6g s\n", name,
	       s->cluster->name, bounded ? "bounded" : "exhaustive", h.looked, h.fit,
	       core_s() - start, h.best.time.total);
	fflush(stdout);
	return h.best.time.total;
}

static bool run(int i, bool bounded_only)
{
	const char *words[JOB_AUTO_MAX + 1];
	int n = job_auto_words(words);
	struct job job;
	struct cluster c;
	struct err e = ERR_INIT;
	struct space *s = calloc(1, sizeof *s);
	struct search *found = calloc(1, sizeof *found);
	words[n++] = cases[i].word;
	if (!s || !found || job_load(cases[i].file, words, n, &job, &e) ||
	    topo_cluster_open(cases[i].machine, 0, &c, &e) || search_space_open(&job, &c, s, &e)) {
		fprintf(stderr, "search: %s\n", e.text);
		exit(1);
	}
	double best = walk(s, true, cases[i].file), start = core_s();
	bool same = bounded_only || !cases[i].exhaustive ||
		    fabs(walk(s, false, cases[i].file) - best) <= 1e-12 * best;
	start = core_s();
	if (search_run(&job, &c, &(struct search_options){ .finalists = SEARCH_FINALISTS }, found,
		       &e))
		fprintf(stderr, "search: %s\n", e.text);
	printf("%-32s %-15s %-11s %9lld looked at %9d built %5.2f s  best %.6g s\n", cases[i].file,
	       c.name, "finalists", (long long)found->considered, found->n, core_s() - start,
	       found->found[0].time.total);
	topo_cluster_free(&c);
	free(found);
	free(s);
	return same;
}

int main(int argc, char **argv)
{
	bool same = true, bounded_only = argc > 1 && !strcmp(argv[1], "bounded");
	for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++)
		same &= run(i, bounded_only);
	if (!same)
		fputs("search: the modes do not agree\n", stderr);
	return !same;
}
