#include "tests/unit/plan/scene.h"

#include "plan/cost/devices.h"
#include "plan/cost/measured.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Cuts blank-separated words in place. */
static int cut(char *text, const char *words[], int most)
{
	int n = 0;
	for (char *w = strtok(text, " "); w && n < most; w = strtok(NULL, " "))
		words[n++] = w;
	return n;
}

static struct job job_of(const struct run *r, const char *more)
{
	char text[1000];
	const char *words[40];
	struct job job;
	struct err e = ERR_INIT;
	int dp = r->devices / (r->tp * r->pp);
	snprintf(text, sizeof text,
		 "model.vocab=51200 model.seq=2048 precision.dtype=fp16 model.dropout=0.1 "
		 "model.attn_dropout=0.1 model.layers=%d "
		 "model.hidden=%d model.heads=%d parallel.tp=%d parallel.pp=%d parallel.dp=%d "
		 "batch.global=%d batch.micro=%d parallel.schedule=%s "
		 "parallel.chunks=%d %s",
		 r->layers, r->hidden, r->heads, r->tp, r->pp, dp, r->global, r->micro,
		 r->chunks > 1 ? "interleaved" : "1f1b", r->chunks > 1 ? r->chunks : 0, more);
	if (job_load(NULL, words, cut(text, words, 40), &job, &e))
		fail_msg("%s", e.text);
	return job;
}

static struct stage *equal_stages(const struct layout *l, int layers)
{
	int n = layout_n_stages(l);
	struct stage *stages = calloc((size_t)n, sizeof *stages);
	assert_non_null(stages);
	for (int i = 0; i < n; i++)
		stages[i] = (struct stage){ i * layers / n, (i + 1) * layers / n, i == 0,
					    i == n - 1 };
	return stages;
}

static void block_spans(const struct cluster *c, const struct layout *l,
			struct group_links group_links[GROUP_KINDS])
{
	int world = layout_world(l), devices = c->kinds[0].devices;
	struct cluster_slot *slots = calloc((size_t)world, sizeof *slots);
	struct err e = ERR_INIT;
	assert_non_null(slots);
	for (int i = 0; i < world; i++)
		slots[i] = (struct cluster_slot){ i / devices, i % devices };
	assert_int_equal(place_group_links_of(c, l, slots, group_links, &e), 0);
	free(slots);
}

void open_scene(struct scene *x, const struct run *r, const struct setting *s,
		const struct cost_machine *machine)
{
	char spec[100];
	struct err e = ERR_INIT;
	struct cluster c;
	x->job = job_of(r, s->words);
	x->layout = layout_of(&x->job, r->devices / (r->tp * r->pp * (int)x->job.parallel.cp));
	x->stages = equal_stages(&x->layout, r->layers);
	shape_of_job(&x->job, &x->shape);
	snprintf(spec, sizeof spec, "%s:%d", s->cluster, (r->devices + 7) / 8);
	if (topo_cluster_open(spec, 0, &c, &e))
		fail_msg("%s", e.text);
	cost_machine_of(&c.kinds[0], true, 1, &x->machine);
	x->machine = machine ? *machine : x->machine;
	block_spans(&c, &x->layout, x->group_links);
	topo_cluster_free(&c);
	cost_machine_links(&x->machine, x->group_links);
	cost_units_of(&x->shape, &x->layout, 0, &x->units);
	x->of = (struct cost_case){ .job = &x->job,
				    .shape = &x->shape,
				    .layout = &x->layout,
				    .stages = x->stages,
				    .units = &x->units,
				    .group_links = x->group_links,
				    .machine = &x->machine,
				    .engine = s->engine,
				    .micros = r->global / (x->layout.dp * r->micro) };
}

struct plan_time predict_on(const struct run *r, const struct setting *s,
			    const struct cost_machine *machine)
{
	static struct scene x;
	struct plan_time t;
	open_scene(&x, r, s, machine);
	cost_step(&x.of, &t);
	free(x.stages);
	return t;
}

struct plan_time predict(const struct run *r, const struct setting *s)
{
	return predict_on(r, s, NULL);
}

void open_host(int cores, int slots, double meeting, struct cluster *c)
{
	struct measured_machine m = { .agents = 1, .threads = 1 };
	struct measured_exchange x = { .op = MEASURED_MEETING,
				       .group = 4,
				       .crowd = 4,
				       .n = 1,
				       .bytes = { 1 },
				       .seconds = { meeting } };
	assert_int_equal(topo_cluster_open("local", slots, c, NULL), 0);
	struct node_kind *k = &c->kinds[0];
	free(k->measured);
	k->measured = calloc(1, sizeof *k->measured);
	assert_non_null(k->measured);
	k->cores = k->measured->cores = cores;
	k->device_memory = k->memory = 64e9;
	k->link_bandwidth = 1e9;
	k->link_latency = 1e-5;
	m.machine.rates[RATE_PRODUCT_FWD] = (struct rate_curve){ 1, { 1 }, { 1e11 } };
	m.machine.rates[RATE_MOVED] = (struct rate_curve){ 1, { 1 }, { 1e10 } };
	topo_measured_add_machine(k->measured, &m);
	if (meeting > 0)
		topo_measured_add_exchange(k->measured, &x);
}
